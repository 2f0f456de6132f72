import shutil
from pathlib import Path

from generation.run_folder import RunFolder


def copy_of(run: RunFolder, to: Path) -> RunFolder:
    """Copy a run, so that a test can change it."""
    shutil.copytree(run.path, to)
    return RunFolder(to)
