"""The list of deliberate faults fits the code: `make test-faults` can make each of them."""

from __future__ import annotations

from collections import Counter

from faults.run import PACKAGES, ROOT, read_faults


def test_every_fault_can_be_made() -> None:
    """Its text stands exactly once in its package, and its room has tests."""
    faults = read_faults()
    for fault in faults:
        path = fault.place(ROOT)
        compile(path.read_text("utf-8").replace(fault.text, fault.becomes), path.name, "exec")
        assert fault.text != fault.becomes
        assert len(fault.room(ROOT)) > 1, fault
    packages = Counter(fault.package for fault in faults)
    assert min(packages[name] for name in PACKAGES) >= 15
    assert len(faults) >= 60
