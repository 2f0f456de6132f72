"""Licence, origin and citation of each source, and the sections of the card with them.

A source of its own licence is an entry of `_FACTS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from merge_dataset.schema import ANLI_SOURCES


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """Licence and origin of a source's problems, which its variants inherit."""

    title: str
    licence_ids: tuple[str, ...]
    """Identifiers as the Hub spells them."""
    licence: str
    source_dataset: str
    """The Hub's `source_datasets` value."""
    creators: str
    """The Hub's value for who wrote and labelled the problems."""
    citation: str | None = None
    """BibTeX entry."""


def source_facts(source: str) -> SourceFacts:
    """Look up a source; of a user's own only that is known that it is theirs."""
    own = SourceFacts(
        title="a source of the user's own",
        licence_ids=("unknown",),
        licence=(
            "the licence of the data set it was made from. Look it up there before passing "
            "these files on"
        ),
        source_dataset=f"extended|other-{source}",
        creators="found",
    )
    return _FACTS.get(source, own)


def licence_section(names: Iterable[str]) -> str:
    """Write the section of the card on the licences of these sources."""
    facts = {name: source_facts(name) for name in names}
    items = [f"- `{name}` ({fact.title}): {fact.licence}.\n" for name, fact in facts.items()]
    return (
        "## Licences\n\nSeeds are the problems of the source, and variants are adaptations of "
        "them, so both stay under its licence:\n\n" + "".join(items)
    )


def citation_section(names: Iterable[str], *, paraphrases: bool) -> str:
    """Write the section with BibTeX entries: of the methods, then of sources that have one.

    Args:
        names: Of the sources.
        paraphrases: Whether the folder has paraphrases.
    """
    entries = [_MERGE, *([_SENSITIVITY] if paraphrases else [])]
    entries += [citation for name in names if (citation := source_facts(name).citation)]
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

_SNLI: Final = """\
@inproceedings{bowman-etal-2015-large,
  title = {A large annotated corpus for learning natural language inference},
  author = {Bowman, Samuel R. and Angeli, Gabor and Potts, Christopher and Manning, Christopher D.},
  booktitle = {Proceedings of the 2015 Conference on Empirical Methods in Natural Language
               Processing},
  year = {2015},
  pages = {632--642},
  url = {https://aclanthology.org/D15-1075}
}
"""

_MNLI: Final = """\
@inproceedings{williams-etal-2018-broad,
  title = {A Broad-Coverage Challenge Corpus for Sentence Understanding through Inference},
  author = {Williams, Adina and Nangia, Nikita and Bowman, Samuel},
  booktitle = {Proceedings of the 2018 Conference of the North American Chapter of the Association
               for Computational Linguistics: Human Language Technologies},
  year = {2018},
  pages = {1112--1122},
  url = {https://aclanthology.org/N18-1101}
}
"""

_ANLI: Final = """\
@inproceedings{nie-etal-2020-adversarial,
  title = {Adversarial {NLI}: A New Benchmark for Natural Language Understanding},
  author = {Nie, Yixin and Williams, Adina and Dinan, Emily and Bansal, Mohit and Weston, Jason and
            Kiela, Douwe},
  booktitle = {Proceedings of the 58th Annual Meeting of the Association for Computational
               Linguistics},
  year = {2020},
  pages = {4885--4901},
  url = {https://aclanthology.org/2020.acl-main.441}
}
"""


def _mnli(part: str) -> SourceFacts:
    return SourceFacts(
        title=f"MultiNLI development set, {part}",
        licence_ids=("cc-by-3.0", "cc-by-sa-3.0", "other"),
        licence=(
            "the licence of the Open American National Corpus (OANC); its fiction part is under "
            "CC BY-SA 3.0 and CC BY 3.0, or in the public domain in the United States"
        ),
        source_dataset="extended|multi_nli",
        creators="crowdsourced",
        citation=_MNLI,
    )


def _anli(source: str) -> SourceFacts:
    return SourceFacts(
        title=f"Adversarial NLI test set, round {source.removeprefix('anli-r')}",
        licence_ids=("cc-by-nc-4.0",),
        licence="CC BY-NC 4.0",
        source_dataset="extended|anli",
        creators="crowdsourced",
        citation=_ANLI,
    )


_FACTS: Final = {
    "demo": SourceFacts(
        title="problems written by hand for trying this out",
        licence_ids=("cc0-1.0",),
        licence="CC0 1.0",
        source_dataset="original",
        creators="expert-generated",
    ),
    "snli": SourceFacts(
        title="SNLI test set",
        licence_ids=("cc-by-sa-4.0",),
        licence="CC BY-SA 4.0",
        source_dataset="extended|snli",
        creators="crowdsourced",
        citation=_SNLI,
    ),
    "mnli-m": _mnli("matched"),
    "mnli-mm": _mnli("mismatched"),
    **{source: _anli(source) for source in ANLI_SOURCES},
}
