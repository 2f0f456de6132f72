"""Write verb_patterns.toml from SNLI's and MultiNLI's development sets; run in `tests/`."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from generation.problems.morphology import lemmas
from generation.problems.tagging import Tagger
from generation.signals.grammar import PATTERNS, pattern
from merge_dataset.files import write_text

ROOT: Final = Path(__file__).parents[2]
SHIPPED: Final = ROOT / "generation" / "signals" / "verb_patterns.toml"
DATA: Final = ROOT.parent / "shared" / "data"
FILES: Final = ("snli_dev.jsonl", "mnli_dev_matched.jsonl")
LEAST: Final = 5


def read_texts() -> list[str]:
    texts = dict[str, None]()
    for name in FILES:
        with (DATA / name).open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                texts |= dict.fromkeys((row["sentence1"], row["sentence2"]))
    return list(texts)


def count(texts: Iterable[str], tagger: Tagger) -> dict[str, Counter[str]]:
    """Count patterns by verb, for sufficiently frequent verbs."""
    found: dict[str, Counter[str]] = {}
    for sentence in tagger.tag(texts):
        for position, token in enumerate(sentence.tokens):
            if token.tag.startswith("VB") and token.text.isalpha():
                verb = lemmas(token.text.lower(), token.tag)[0]
                found.setdefault(verb, Counter())[pattern(sentence, position)] += 1
    return {verb: found[verb] for verb in sorted(found) if found[verb].total() >= LEAST}


def render(counts: Mapping[str, Counter[str]], texts: int) -> str:
    lines = [
        "# What follows verbs: python -m helpers.count_verbs, in tests/. Numbers are occurrences",
        f"# in {texts:,} texts of SNLI's and MultiNLI's (matched) development sets, in the order:",
        f"# {', '.join(PATTERNS)}.",
        "[verbs]",
    ]
    for verb, patterns in counts.items():
        lines.append(f"{verb} = [{', '.join(str(patterns[each]) for each in PATTERNS)}]")
    return "\n".join([*lines, ""])


def main() -> None:
    texts = read_texts()
    write_text(SHIPPED, render(count(texts, Tagger.load()), len(texts)))


if __name__ == "__main__":
    main()
