"""A Ray cluster for one command, in namespaces that have nothing but loopback.

Ray's daemons listen on all interfaces; there they reach no further than the test.
"""

from __future__ import annotations

CLUSTER = """
ip link set lo up
export TMPDIR="$1"
"$2" -c 'from ray.scripts.scripts import main; main()' start --head --temp-dir="$1" \
    --node-ip-address=127.0.0.1 --num-cpus=3 --include-dashboard=false --disable-usage-stats \
    --object-store-memory=100000000 >&2
"${@:2}"
"""
"""For `namespaces.run_apart`: $1 is a folder with a short path, $2 is Python, and all from $2 on
is what to run beside the cluster."""
