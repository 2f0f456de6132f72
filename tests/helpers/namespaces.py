"""Commands in separate namespaces, which end with all their processes; only loopback."""

import functools
import os
import subprocess

_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def _unshare() -> tuple[str, ...]:
    return _UNSHARE if os.geteuid() == 0 else (*_UNSHARE, "--map-root-user")


@functools.cache
def missing() -> str | None:
    """Reason why namespaces cannot be made here; None if they can."""
    try:
        done = run_apart("ip link set lo up", timeout=10)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip()


def run_apart(
    script: str, *arguments: str, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_unshare(), "bash", "-euc", script, "bash", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
