import shutil
from pathlib import Path

from generation.run_folder import RunFolder


def copy_of(run: RunFolder, to: Path) -> RunFolder:
    """A copy of a run, to be changed."""
    shutil.copytree(run.path, to)
    return RunFolder(to)
