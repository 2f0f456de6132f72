"""The command `merge-nli`; Ctrl+C before a command begins, or after it, gives no traceback."""

import atexit
import gc
import io
import os
import signal
import sys
import threading
from contextlib import suppress


def run() -> None:
    """Run a command as the work of a process, and end the process at once.

    Python itself would look for garbage among the million objects of torch and its like first, for
    a second. What is to be done at the end is done in its order: threads end their work, then
    databases are closed and temporary files go.
    """
    code = 0
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):  # words for stderr
            raise
        code = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError):  # a closed pipe, of which Python tells as ever
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)


def main() -> None:
    """Import the commands and run one."""
    gc.set_threshold(1_000_000)  # of many objects, mostly of imports, nearly none is in cycles
    # pyarrow's own allocator gives memory back at once, which costs a tenth of the time of `score`.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sys.meta_path.insert(0, _NoPandasForArrow())
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed (`2>&-`): the next open file would replace it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
        stream = getattr(sys, name)
        is_strict = stream.errors == "strict" or stream.encoding != "utf-8"
        if name != "stdin" and is_strict and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names may have any characters
    # Progress is a line a minute if stderr is not a terminal, and none with --quiet: tqdm reads
    # its defaults from the environment when it is imported.
    if "--quiet" in sys.argv[1:]:
        sys.argv[1:] = ["--quiet", *(word for word in sys.argv[1:] if word != "--quiet")]
        os.environ["TQDM_DISABLE"] = "1"
    if not sys.stderr.isatty():
        line = "{desc}: {n_fmt} of {total_fmt}, {elapsed}\n"
        for setting, value in (("MININTERVAL", "60"), ("DELAY", "60"), ("BAR_FORMAT", line)):
            os.environ.setdefault(f"TQDM_{setting}", value)
    pressed: list[int] = []
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # a shell ignores it for jobs in the background
        signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    from generation import cli

    signal.signal(signal.SIGINT, usual)
    try:
        cli.main(is_stopped=bool(pressed))
    finally:
        # Nothing is left to stop, and while the interpreter ends there would be a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class _NoPandasForArrow:
    """A finder that hides pandas from pyarrow where our code makes an array.

    pyarrow imports it, which takes a third of a second, to recognise series; our arrays are not
    made from series. Other code that imports pandas, or asks pyarrow for data frames, finds it.
    """

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise `ModuleNotFoundError` for these imports of pandas, and find nothing otherwise."""
        frame = sys._getframe(1)
        while name == "pandas" and frame.f_back:
            importer = frame.f_globals["__name__"].partition(".")
            if importer[0] in ("generation", "merge_dataset", "merge_metric"):
                raise ModuleNotFoundError(name=name)
            if importer[0] != "importlib" and importer[2] != "compute":
                return
            frame = frame.f_back


if __name__ == "__main__":
    run()
