"""What the dataset card says in words: prose, and the facts about each source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from merge_dataset.schema import DATASET_NAME, SPLITS


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
    """What is known about a source; of a user's own, only that it is theirs."""
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


def loading(example: str) -> str:
    """How to load the data, with an example configuration."""
    seeds, variants = SPLITS
    return f"""\
## Loading

With the folder `{DATASET_NAME}/` in the working directory, or registered once with
`merge-nli register {DATASET_NAME}`, in which case from any directory and offline:

```python
from datasets import load_dataset

data = load_dataset("{DATASET_NAME}", "{example}")
data["{seeds}"]     # the original problems
data["{variants}"]  # their variants
```

A configuration `<source>` holds all word classes; `<source>_nouns`, `<source>_verbs`,
`<source>_adjectives` and `<source>_adverbs` hold one each, where there are any.
"""


def licences(names: Iterable[str]) -> str:
    """The licence section for these sources."""
    facts = {name: source_facts(name) for name in names}
    items = [f"- `{name}` ({fact.title}): {fact.licence}.\n" for name, fact in facts.items()]
    return (
        "## Licences\n\nSeeds are the problems of the source, and variants are adaptations of "
        "them, so both stay under its licence:\n\n" + "".join(items)
    )


def citations(names: Iterable[str]) -> str:
    """BibTeX entries: of the method, then of the sources that have one."""
    entries = [_MERGE, *(citation for n in names if (citation := source_facts(n).citation))]
    return "## Citation\n\n```bibtex\n" + "\n".join(dict.fromkeys(entries)) + "```\n"


INTRODUCTION: Final = """\
# MERGE-NLI

MERGE (Minimal Expression-Replacement GEneralization) tests whether a model that solves a
natural language inference problem also solves minimal variants of it. Each *seed*, a premise
and a hypothesis with a gold label, comes with *variants* in which one word that premise and
hypothesis share is replaced in both, everywhere it occurs, by another word of the same class:

| | premise | hypothesis | label |
| --- | --- | --- | --- |
| seed | A **girl** jumps in the air. | A **girl** jumps high. | neutral |
| variant | A **boy** jumps in the air. | A **boy** jumps high. | neutral |

The reasoning from premise to hypothesis is unaffected by which word it is, so the label stays.
Word overlap, syntax and length stay as well: the variants are not adversarial. A model is
scored by *seed-variant accuracy*: a seed counts as solved when at least a given percentage of
its variants are classified correctly.
"""

COLUMNS_HEADING: Final = """\
## Columns

The same in both splits; those from `word_class` to `subsamples` are empty in `seeds`.

"""

COLUMNS: Final = {
    "`variant_id`": "identifier, unique in the configuration; in `seeds` the seed's own",
    "`seed_id`": "identifier of the seed: join the splits and group the variants by it",
    "`source`": "where the seed is from, for example `snli`",
    "`premise`, `hypothesis`": "the two sentences, the replacement in place",
    "`label`": "0 entailment, 1 neutral, 2 contradiction; a variant has its seed's",
    "`word_class`": "`noun`, `verb`, `adjective` or `adverb`",
    "`original`": "the seed's word",
    "`replacement`": "the word that stands in its place",
    "`premise_spans`, `hypothesis_spans`": (
        "where the replacement stands in this row's sentences: half-open [start, end) character "
        "offsets, one pair for each occurrence"
    ),
    "`mlms`": "the masked language models that validated the replacement in either sentence",
    "`premise_mlms`, `hypothesis_mlms`": "the same for each sentence",
    "`log_odds`": (
        "smallest log P(replacement) - log P(original), in nats, over the occurrences and models"
    ),
    "`subsamples`": "numbers of the random subsamples the variant was drawn into, from 0",
    "`annotator_labels`": "the annotators' single votes on the seed, where the source has them",
}
"""Column or columns → what they hold."""

STATISTICS: Final = """\
## Statistics

One row of `variants` is one unique variant, however many of the random subsamples it is in.
A seed with variants in several word classes counts once in the configuration of all classes.

"""

MAKING: Final = """\
## How it was made

With MERE (Minimal Expression REplacement). Every word that premise and hypothesis share with
the same class is masked, one occurrence at a time unless the settings say otherwise, and each
masked language model proposes its most probable words. A proposal is kept when the model finds
it more probable than the original, when it is no word of the problem yet, and when it is tagged
with the original's class in its place; it must hold at every occurrence in a sentence for one
and the same model, and in both sentences for some model. Seeds with too few replacements are
left out; from the others, variants are drawn at random into several subsamples. An ablation
changes one of these conditions. `provenance.json` in each source's folder has the facts below
for machines.

"""

LIMITS: Final = """\
## Limits

- Labels are automatic: a variant keeps its seed's label and was not annotated again. Some
  replacements change the inference or make an odd sentence.
- A word that a model splits into several word pieces is not replaced by that model.
- Morphological relatives of a replaced word are left alone: with *sleeps* replaced, *sleeping*
  stays.
- When a word occurs several times in a sentence and one occurrence is masked at a time, the
  others remain visible and may bias the model's proposals.
- English only.
- Replacements reflect what the masked language models consider likely, social biases included.
"""

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
}
