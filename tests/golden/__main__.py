import os
import sys
import tempfile
from pathlib import Path

from helpers.processes import processor_flags


def set_environment(home: Path) -> None:
    """Set an empty home, offline mode, one thread and 80 columns, before any import."""
    os.environ |= {
        "HOME": str(home), "HF_HOME": str(home / "hf"), "XDG_CACHE_HOME": str(home / "cache"),
        "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1", "MPLCONFIGDIR": str(home / "matplotlib"), "COLUMNS": "80",
        "NO_COLOR": "1", "TQDM_DISABLE": "1", "TERM": "dumb", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    if "avx512f" not in processor_flags():  # some worlds use torch before they load a model
        os.environ["MKL_CBWR"] = "AVX2"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="golden-home-") as own:
        set_environment(Path(own))
        from golden.record import main

        sys.exit(main())
