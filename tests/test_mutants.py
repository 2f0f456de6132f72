from collections import Counter

from mutants.run import PACKAGES, ROOT, read_mutants


def test_every_mutant_can_be_made() -> None:
    mutants = read_mutants()
    for mutant in mutants:
        path = mutant.place(ROOT)
        if path.suffix == ".py":
            compile(path.read_text("utf-8").replace(mutant.text, mutant.becomes), path.name, "exec")
        assert mutant.text != mutant.becomes
        assert len(mutant.room(ROOT)) > 1, mutant
    packages = Counter(mutant.package for mutant in mutants)
    assert min(packages[name] for name in PACKAGES) >= 15
    assert len(mutants) >= 60
