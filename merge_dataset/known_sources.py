"""Known sources: their columns and labels, their place on the Hub, licence, origin, citation.

A source that people know by name is a row of `SOURCES`, and its name is in
`schema.KNOWN_SOURCES`, which the loading script needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from merge_dataset.schema import LABELS


class HubSplit(NamedTuple):
    """A split of a dataset on the Hub."""

    dataset: str
    config: str | None
    split: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source of problems; variants inherit its licence."""

    title: str
    hub: HubSplit | None = None
    """The Hub's copy, which is read unless a file is named."""
    official_file: str | None = None
    """The file of the release that has annotators' votes, which the Hub's copy has not."""
    licence_ids: tuple[str, ...]
    """Identifiers as the Hub spells them."""
    licence: str
    source_dataset: str
    """The Hub's `source_datasets` value."""
    creators: str
    """The Hub's value for who wrote and labelled the problems."""
    citation: str | None = None
    """BibTeX entry."""


COLUMN_NAMES: Final = {
    "premise": ("sentence1", "premise", "context", "sentence_A", "text1"),
    "hypothesis": ("sentence2", "hypothesis", "sentence_B", "text2"),
    "label": ("gold_label", "label", "entailment_judgment", "entailment_label"),
    "id": ("pairID", "pair_ID", "uid", "idx", "id"),
}
"""Part of a problem → names of its column in the usual NLI releases, tried in this order."""


UNLABELLED: Final = ("-", "-1", "")
"""Spellings of no gold label."""

LABEL_SPELLINGS: Final = {
    **{label: label for label in LABELS},
    **{label[0]: label for label in LABELS},
    **{str(number): label for number, label in enumerate(LABELS)},
    **dict.fromkeys((*UNLABELLED, "none", "hidden"), ""),
}
"""Spelling in the usual NLI releases, in lower case → label; "" means unlabelled."""


def source_of(name: str) -> Source:
    """Look up a source; of a user's own source nothing is known but that it is theirs."""
    own = Source(
        title="a source of the user's own",
        licence_ids=("unknown",),
        licence=(
            "the licence of the data set it was made from. Look it up there before passing "
            "these files on"
        ),
        source_dataset=f"extended|other-{name}",
        creators="found",
    )
    return SOURCES.get(name, own)


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


def _mnli(part: str) -> Source:
    return Source(
        title=f"MultiNLI development set, {part}",
        hub=HubSplit("nyu-mll/multi_nli", None, f"validation_{part}"),
        official_file=f"multinli_1.0_dev_{part}.jsonl",
        licence_ids=("cc-by-3.0", "cc-by-sa-3.0", "other"),
        licence=(
            "the licence of the Open American National Corpus (OANC); its fiction part is under "
            "CC BY-SA 3.0 and CC BY 3.0, or in the public domain in the United States"
        ),
        source_dataset="extended|multi_nli",
        creators="crowdsourced",
        citation=_MNLI,
    )


SOURCES: Final = {
    "demo": Source(
        title="problems written by hand for trying this out",
        licence_ids=("cc0-1.0",),
        licence="CC0 1.0",
        source_dataset="original",
        creators="expert-generated",
    ),
    "snli": Source(
        title="SNLI test set",
        hub=HubSplit("stanfordnlp/snli", None, "test"),
        official_file="snli_1.0_test.jsonl",
        licence_ids=("cc-by-sa-4.0",),
        licence="CC BY-SA 4.0",
        source_dataset="extended|snli",
        creators="crowdsourced",
        citation=_SNLI,
    ),
    "mnli-m": _mnli("matched"),
    "mnli-mm": _mnli("mismatched"),
    **{
        f"anli-r{number}": Source(
            title=f"Adversarial NLI test set, round {number}",
            hub=HubSplit("facebook/anli", None, f"test_r{number}"),
            licence_ids=("cc-by-nc-4.0",),
            licence="CC BY-NC 4.0",
            source_dataset="extended|anli",
            creators="crowdsourced",
            citation=_ANLI,
        )
        for number in (1, 2, 3)
    },
}
"""Name → source."""
