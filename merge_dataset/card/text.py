"""The words of the dataset card.

It speaks of replacements where there are some, and of paraphrases where there are some.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from merge_dataset.dataset_columns import COLUMNS
from merge_dataset.known_sources import source_of
from merge_dataset.provenance import PARAPHRASES, REPLACEMENTS
from merge_dataset.schema import DATASET_NAME, NLI, SPLITS, ProblemFormat

Kinds = Collection[str]
"""`REPLACEMENTS`, `PARAPHRASES`, or both: what a folder holds."""

Formats = Mapping[str, ProblemFormat]
"""Collection → the format of its problems."""


def introduction(kinds: Kinds, formats: Formats) -> str:
    """Say what the data are for, and what a variant is."""
    if PARAPHRASES not in kinds:
        text = _INTRODUCTION
    elif REPLACEMENTS not in kinds:
        text = _PARAPHRASE_INTRODUCTION + _SCORED
    else:
        text = _INTRODUCTION + _PARAPHRASES_TOO
    rows = "".join(
        f"| `{name}` | {', '.join(each.fields)} | {', '.join(each.labels)} |\n"
        for name, each in formats.items()
        if each != NLI
    )
    return f"{text}{_OTHER_FORMATS}{rows}" if rows else text


def loading(example: str, kinds: Kinds) -> str:
    """Say how to load the data, with an example configuration."""
    seeds, variants = SPLITS
    held = "".join(of_kinds(_CONFIGURATIONS, kinds))
    return f"""\
## Loading

This works in the directory that holds the folder `{DATASET_NAME}/`. After
`merge-nli register {DATASET_NAME}`, a command of the package [below](#scoring-a-model), it works in
any directory, also offline:

```python
from datasets import load_dataset

data = load_dataset("{DATASET_NAME}", "{example}")
data["{seeds}"]     # the original problems
data["{variants}"]  # their variants
```

{held}
## Scoring a model

With the Python package `merge-nli`, which also made the data (`pip install 'merge-nli[predict]'`):

```sh
merge-nli predict --model MODEL --dataset {DATASET_NAME} --out predictions.parquet
merge-nli score predictions.parquet --dataset {DATASET_NAME}
```

`MODEL` is a model's name on the Hub or its folder. The figures are averages over the subsamples.
"""


def columns(kinds: Kinds, formats: Formats, empty: Collection[str] = ()) -> dict[str, str]:
    """Map the names of columns, as code, to what the columns hold; not of those that are empty."""
    fields = dict.fromkeys(one.fields for one in formats.values())
    labels = dict.fromkeys(one.labels for one in formats.values())
    numbers = (", ".join(f"{n} {label}" for n, label in enumerate(names)) for names in labels)
    label_text, meanings = "; or ".join(numbers), {}
    for column in COLUMNS:
        if column.optional and not any(column.name in one.optional for one in formats.values()):
            continue
        groups = dict.fromkeys(column.names(each) for each in fields)
        if {name for group in groups for name in group} <= {*empty}:
            continue
        names = "; ".join(", ".join(f"`{name}`" for name in group) for group in groups)
        meaning = column.meaning
        if PARAPHRASES in kinds and column.in_paraphrases:
            others = f"{meaning}; of a paraphrase: " if REPLACEMENTS in kinds else ""
            meaning = f"{others}{column.in_paraphrases}"
        meanings[names] = meaning.format(labels=label_text)
    return meanings


def of_kinds(texts: Mapping[str, str], kinds: Kinds) -> list[str]:
    """List the texts on what a folder holds."""
    return [text for kind, text in texts.items() if kind in kinds]


def limits(kinds: Kinds, *, relatives_stay: bool = True, pieces_stay: bool = True) -> str:
    """Say what a reader should not expect."""
    english = "- English only.\n" if REPLACEMENTS not in kinds else ""
    text = "".join(["## Limits\n\n", *of_kinds(_LIMITS, kinds), english])
    for stays, limit in ((relatives_stay, _RELATIVES), (pieces_stay, _PIECES)):
        text = text if stays else text.replace(limit, "")
    return text


def options(config: Mapping[str, Any]) -> Iterator[str]:
    """Say what variants change beside one word, by a run's settings."""
    families, count = config.get("families"), config.get("words_at_once", 1)
    if families in _FAMILIES:
        yield _FAMILIES[families]
    if count > 1:
        yield f"A variant replaces {count} shared words of the class at once."
    if config.get("repair_articles"):
        yield 'Where "a" or "an" stands before a replaced word, it is made to fit.'
    if families == "inflect" or count > 1 or config.get("repair_articles"):
        yield _PAIRS


def licence_section(names: Iterable[str]) -> str:
    """Write the section of the card on the licences of these sources."""
    facts = {name: source_of(name) for name in names}
    items = [f"- `{name}` ({fact.title}): {fact.licence}.\n" for name, fact in facts.items()]
    return (
        "## Licences\n\nSeeds are problems of the source, and variants are adaptations of "
        "them. Both are under its licence:\n\n" + "".join(items)
    )


def citation_section(names: Iterable[str], *, paraphrases: bool) -> str:
    """Write the section with BibTeX entries: of the methods, then of sources that have one."""
    entries = [_MERGE, *([_SENSITIVITY] if paraphrases else [])]
    entries += [citation for name in names if (citation := source_of(name).citation)]
    return "## Citation\n\n```bibtex\n" + "\n".join(dict.fromkeys(entries)) + "```\n"


_RULE: Final = """\
A model is scored by *seed-variant accuracy*: a seed counts as right if at least a given
percentage of its variants, 90 unless another is named, are classified correctly.
"""

_INTRODUCTION: Final = (
    """\
# MERGE-NLI

MERGE (Minimal Expression-Replacement GEneralization) tests whether a model that answers a
natural language inference problem right also answers minimal variants of it right. Each *seed*, a
premise and a hypothesis with a gold label, comes with *variants* in which one word that premise
and hypothesis share is replaced in both, everywhere it occurs, by another word of the same class:

| | premise | hypothesis | label |
| --- | --- | --- | --- |
| seed | A **girl** jumps in the air. | A **girl** jumps high. | neutral |
| variant | A **boy** jumps in the air. | A **boy** jumps high. | neutral |

The reasoning from premise to hypothesis does not depend on this word, so the label should stay.
Word overlap, syntax and length stay as well, and no variant is chosen because a model fails on it.
"""
    + _RULE
)

_PARAPHRASE: Final = """\
| | premise | hypothesis | label |
| --- | --- | --- | --- |
| seed | A girl jumps in the air. | **A girl jumps high.** | neutral |
| variant | A girl jumps in the air. | **There is a girl who jumps high.** | neutral |
"""

_PARAPHRASE_INTRODUCTION: Final = f"""\
# MERGE-NLI

These data test whether a model that answers a natural language inference problem right also answers
it right in other words. Each *seed*, a premise and a hypothesis with a gold label, comes with
*variants* whose hypothesis is paraphrased as a whole:

{_PARAPHRASE}
The meaning should stay, and with it the label: this is the semantic sensitivity of Arakelyan, Liu
and Augenstein (2024). All seeds are problems that one NLI model M answers right, and M finds each
paraphrase and its hypothesis to entail one another.
"""

_SCORED: Final = f"\n{_RULE}"

_PARAPHRASES_TOO: Final = f"""\

The configurations called `<source>_paraphrases` have variants of another kind: the hypothesis is
paraphrased as a whole, and the premise stays:

{_PARAPHRASE}
They measure the semantic sensitivity of Arakelyan, Liu and Augenstein (2024). Their seeds are
problems that one NLI model M answers right, and M finds each paraphrase and its hypothesis to
entail one another.
"""

_OTHER_FORMATS: Final = """\

Problems of other tasks than NLI have other texts and labels. What this card says of premise and
hypothesis holds for these texts: a word that they share, or some of them where the settings
below say so, is replaced in all of them.

| collection | texts | labels |
| --- | --- | --- |
"""

_CONFIGURATIONS: Final = {
    REPLACEMENTS: """\
A configuration `<source>` holds all word classes; `<source>_nouns`, `<source>_verbs`,
`<source>_adjectives` and `<source>_adverbs` hold one each, where there are any.
""",
    PARAPHRASES: """\
A configuration `<source>_paraphrases` holds the paraphrases, which no other one does.
""",
}

COLUMNS_HEADING: Final = """\
## Columns

Both splits of a configuration have the same columns. Those from `word_class` to `subsamples` are
empty in `seeds`.{empty}

"""

ROWS: Final = {
    REPLACEMENTS: """\
One row of `variants` is one unique variant, however many of the random subsamples (see
[below](#how-it-was-made)) it is in.
A seed with variants in several word classes counts once in the configuration of all classes.
""",
    PARAPHRASES: "Paraphrases are all in one subsample.\n",
}
"""Kind → the text above the figures."""

MAKING: Final = {
    REPLACEMENTS: """\
Replacements are made by MERE (Minimal Expression REplacement). Every word that premise and
hypothesis share with the same class is masked, one occurrence at a time unless the settings say
otherwise, and each masked language model proposes its most probable words. A proposal is kept if
the model finds it more probable than the original, if it is no word of the problem yet, and if it
is tagged with the original's class in its place. A model *validates* a replacement in a sentence
if it passes at every occurrence there; each sentence needs a model that does, and they may differ.
Seeds with too few replacements are left out. From the others, variants are drawn at random, as
many for each seed and word class as `variants_per_class` says, and this several times: these draws
are the subsamples.
An ablation changes one of these conditions. `provenance.json` in each source's folder has the
facts below as JSON. Its fingerprint is the same wherever settings, problems and models are.
""",
    PARAPHRASES: """\
Paraphrases follow Arakelyan, Liu and Augenstein (2024), section 3. Seeds are problems that an
NLI model M answers right. A text generator rewrites their hypotheses, by diverse beam search, in
rounds until there are enough paraphrases or no rounds left. Candidates that copy the hypothesis
or repeat another candidate are dropped. Another candidate is kept if M predicts that it and the
hypothesis entail one another. Seeds without a paraphrase are left out. `provenance.json` in the
folder of the configuration has the facts below as JSON.
""",
}

_FAMILIES: Final = {
    "reject": "Words of which another form stands in the problem are not replaced.",
    "inflect": "Other forms of a replaced word are replaced too, inflected likewise.",
}

_PAIRS: Final = (
    "So `original` and `replacement` may hold several words, with spaces between: the i-th of "
    "`original` became the i-th of `replacement`. What stands at a span says which it is."
)

_PIECES: Final = """\
- A word that a model splits into several word pieces is not replaced by that model.
"""
_RELATIVES: Final = """\
- Morphological relatives of a replaced word are left alone: with *sleeps* replaced, *sleeping*
  stays.
"""

_LIMITS: Final = {
    REPLACEMENTS: f"""\
- Labels are automatic: a variant keeps its seed's label and was not annotated again. Some
  replacements change the inference or make an odd sentence. How many depends on the masked language
  models: of 585 variants by two small ones, a language model, not people, found 42 % good, and the
  label doubtful in 3 %. `merge-nli annotate` draws a sample of these data to judge.
{_PIECES}{_RELATIVES}\
- When a word occurs several times in a sentence and one occurrence is masked at a time, the
  others remain visible and may bias the model's proposals.
- English only.
- Replacements reflect what the masked language models consider likely, social biases included.
""",
    PARAPHRASES: """\
- A paraphrase is what M takes for one, and keeps its seed's label without being annotated again:
  some change the meaning, and what M wrongly rejects is missing.
- Seeds are what M answers right: other models are measured on M's choice of problems, and M's own
  seed accuracy is 100 % by selection.
- Paraphrases carry the style and the social biases of the text generator.
""",
}

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
