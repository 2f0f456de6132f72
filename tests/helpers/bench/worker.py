"""A contender in a separate process: loads, then answers a request per line; no dependencies."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = (
    "torch", "transformers", "tokenizers", "spacy", "numpy", "pyarrow", "evaluate", "datasets",
    "textattack", "nlpaug", "onnxruntime", "openvino", "llama_cpp",
)  # fmt: skip


def main() -> None:
    # Libraries print; their output must not mix with the answers.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    file, name = sys.argv[1:]
    work: Any = _load_module(Path(file))
    work = getattr(work, name)
    for number, line in enumerate(sys.stdin):
        arguments = json.loads(line)
        times = arguments.pop("times", 1)
        cpu, wall = _cpu_seconds(), time.perf_counter()
        for _ in range(times):
            answer = work(**arguments)
        cpu, wall = _cpu_seconds() - cpu, time.perf_counter() - wall
        reply = {"cpu": cpu / times, "wall": wall / times}
        if number == 0:
            work, answer = answer, None
        reply |= {"peak_mb": peak_mb(), "answer": answer() if callable(answer) else answer}
        print(json.dumps(reply | {"versions": _versions()}), file=replies, flush=True)


def peak_mb() -> float:
    """Largest resident set of this process so far, in MB."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes on macOS
    # Not ru_maxrss, which on Linux also includes the parent process.
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def _cpu_seconds() -> float:
    """CPU time of this process and of children that have ended, all threads together."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _load_module(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _versions() -> dict[str, str]:
    used = [package for package in _PACKAGES if package in sys.modules]
    return {"python": platform.python_version()} | {
        package: importlib.metadata.version(package.replace("llama_cpp", "llama-cpp-python"))
        for package in used
    }


if __name__ == "__main__":
    main()
