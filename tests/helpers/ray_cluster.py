"""A Ray cluster for one command, in namespaces with only a loopback interface."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

CLUSTER = """
ip link set lo up
export TMPDIR="$1"
"$2" -c 'from ray.scripts.scripts import main; main()' start --head --temp-dir="$1" \
    --node-ip-address=127.0.0.1 --num-cpus=3 --include-dashboard=false --disable-usage-stats \
    --object-store-memory=100000000 >&2
"${@:2}"
"""
"""Script for `namespaces.run_apart`: $1 is a folder with a short path, $2 is Python, and the
words from $2 on are a command to run beside the cluster."""


@contextmanager
def short_folder() -> Iterator[str]:
    """Make a folder for Ray's own files; a socket's path has at most about a hundred characters."""
    folder = tempfile.mkdtemp(prefix="ray-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
