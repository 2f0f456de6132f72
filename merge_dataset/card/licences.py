"""Sections of the card on licences and citations; `merge_dataset.known_sources` has the facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from merge_dataset.known_sources import source_of


def licence_section(names: Iterable[str]) -> str:
    """Write the section of the card on the licences of these sources."""
    facts = {name: source_of(name) for name in names}
    items = [f"- `{name}` ({fact.title}): {fact.licence}.\n" for name, fact in facts.items()]
    return (
        "## Licences\n\nSeeds are problems of the source, and variants are adaptations of "
        "them. Both are under its licence:\n\n" + "".join(items)
    )


def citation_section(names: Iterable[str], *, paraphrases: bool) -> str:
    """Write the section with BibTeX entries: of the methods, then of sources that have one.

    Args:
        names: Names of the sources.
        paraphrases: Whether the folder has paraphrases.
    """
    entries = [_MERGE, *([_SENSITIVITY] if paraphrases else [])]
    entries += [citation for name in names if (citation := source_of(name).citation)]
    return "## Citation\n\n```bibtex\n" + "\n".join(dict.fromkeys(entries)) + "```\n"


_MERGE: Final = """\
@misc{zgreaban2025merge,
  title = {{MERGE}: Minimal Expression-Replacement {GEneralization} Test for Natural Language
           Inference},
  author = {Zgreab{\\u{a}}n, M{\\u{a}}d{\\u{a}}lina and Deoskar, Tejaswini and Abzianidze, Lasha},
  year = {2025},
  eprint = {2510.24295},
  archivePrefix = {arXiv},
  url = {https://arxiv.org/abs/2510.24295}
}
"""

_SENSITIVITY: Final = """\
@inproceedings{arakelyan-etal-2024-semantic,
  title = {Semantic Sensitivities and Inconsistent Predictions: Measuring the Fragility of {NLI}
           Models},
  author = {Arakelyan, Erik and Liu, Zhaoqi and Augenstein, Isabelle},
  booktitle = {Proceedings of the 18th Conference of the European Chapter of the Association for
               Computational Linguistics (Volume 1: Long Papers)},
  year = {2024},
  pages = {432--444},
  url = {https://aclanthology.org/2024.eacl-long.27}
}
"""
