"""`merge-nli signals --neighbours`: how much less expected a replacement makes the words beside it.

A replacement that does not fit breaks what can be said of it: in "a set of youths is singing",
"singing" is less expected than in "a group of youths is singing". Each of the three words on each
side is masked, one at a time, in the text with the replacement and in the seed's, by every masked
LM that suggested replacements. The word whose log-probability falls most decides for a text; of
texts and of masked LMs the mean is taken (signals.md says what it is worth).

Each text with a replacement is scored once per model, in the store of likelihoods.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from generation.config import Config
from generation.model_signals.built import Built
from generation.model_signals.likelihoods import Likelihoods, LikelihoodStore
from generation.model_signals.pll_changes import changed_texts, fill, open_store
from generation.problems.tagging import Tagger
from generation.records import REPLACEMENT_KEY, Span
from generation.suggestions.ask import mlm_names
from generation.suggestions.masked_lm import Input, MaskedLM
from merge_dataset.executors.calls import says
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import RowGroupWriter, atomic, distinct_rows, read_record
from merge_metric.models.inspection import MASKED_LM
from merge_metric.models.pair_model import ModelRequest, Share
from merge_metric.models.readiness import inspect_models, machine_for, require_all

if TYPE_CHECKING:
    from generation.suggestions.masked_lm import Encoding

SCHEME: Final = "neighbours-3"
"""Name of how it is computed, for stores and records."""
BESIDE: Final = 3
"""Words on each side."""

_WORD: Final = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
"""A word, or a mark by itself."""


def write_neighbour_changes(
    run: str | Path,
    *,
    of: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    batch_tokens: int | None = None,
    distribution: Distribution | None = None,
) -> dict[str, Any]:
    """Score the words beside the replacements of eligible seeds; write `neighbours.parquet`.

    Resumes where an earlier run stopped.

    Args:
        run: A run folder after `build`.
        of: Name of a build inside the folder; by default the run's own.
        device: By default as the run's settings say, like the next two.
        dtype: Number format of the weights.
        batch_tokens: Tokens in a forward pass.
        distribution: Where tasks score the texts; by default all is done here.

    Returns:
        The contents of `neighbours.json`: the masked LMs and the numbers of texts and replacements.

    Raises:
        FileNotFoundError: there is no such build.
        ExecutorError: tasks failed; what they finished is kept.
        ValueError: a masked LM or the tagger cannot be loaded, or the build's letters are shuffled.
    """
    with Built.held(run, of) as built:
        settings = {"device": device, "dtype": dtype, "batch_tokens": batch_tokens}
        config, build = built.config(settings), built.build
        if config.scramble:
            raise ValueError(
                f"{build.path}: expected a build without scrambled letters; score the same build "
                "without scrambling"
            )
        used = {mlm["name"] for mlm in read_record(build.manifest)["mlms"]}
        models = {name: model for name, model in mlm_names(config.mlms).items() if name in used}
        asked = [
            (name, ModelRequest(model=model, dtype=config.dtype), MASKED_LM)
            for name, model in models.items()
        ]
        machine = machine_for(distribution, config.device)
        require_all(inspect_models(asked, machine), machine)
        if distribution is None:
            identities = [_score(built, config, name, model) for name, model in models.items()]
        else:
            here = config.with_absolute_paths().mlms
            absolute = {name: model for name, model in mlm_names(here).items() if name in used}
            unit, folder = f"{__name__}:score_unit", build.tasks("neighbours")
            plan = {"models": absolute, "settings": settings}
            identities = built.in_tasks(unit, folder, plan, distribution)
        build.neighbours_made.unlink(missing_ok=True)
        counts = _write(built, config, [open_store(built, config, each) for each in identities])
        shutil.rmtree(build.tasks("neighbours"), ignore_errors=True)
        made = {"mlms": identities, "scheme": SCHEME, **counts}
        return built.record(build.neighbours_made, made, build.neighbours)


def neighbour_changes(
    mlm: MaskedLM,
    items: Sequence[str],
    *,
    batch_tokens: int | None = None,
    on_progress: Callable[[int], object] = lambda items: None,
) -> Likelihoods:
    """Score texts with replacements; a score does not depend on which others are scored with it.

    The log-probability of a word of several tokens is the sum of theirs, each with itself and the
    later ones masked (as in PLL-word-l2r). Each distinct masked text is asked once.

    Args:
        mlm: The masked LM.
        items: As `item_of` writes them.
        batch_tokens: Tokens in a forward pass.
        on_progress: Called with the number of items done.

    Returns:
        [items] the most negative change of a neighbour's log-probability, in nats; nan where a text
        has no other word.
    """
    parsed = [json.loads(item) for item in items]
    texts = list(dict.fromkeys(side[0] for item in parsed for side in item))
    encodings = dict(zip(texts, mlm.encode(texts), strict=True))
    inputs: list[Input] = []
    known: dict[tuple[str, Span], range] = {}

    def ask(text: str, word: Span) -> range:
        if (text, word) not in known:
            first = len(inputs)
            inputs.extend(_masked(mlm, encodings[text], word, first))
            known[text, word] = range(first, len(inputs))
        return known[text, word]

    asked = [
        [
            (ask(old, before), ask(new, after))
            for before, after in zip(
                neighbours(old, old_spans), neighbours(new, new_spans), strict=True
            )
        ]
        for (old, old_spans), (new, new_spans) in parsed
    ]
    log_probs = mlm.log_probs(inputs, batch_tokens=batch_tokens).astype(np.float64)
    windowed = np.array([each.windowed for each in inputs], np.bool_)
    changes = [
        [log_probs[after].sum() - log_probs[before].sum() for before, after in of_item]
        for of_item in asked
    ]
    on_progress(len(items))
    return Likelihoods(
        np.array([min(each, default=np.nan) for each in changes], np.float64),
        np.array(
            [any(windowed[n].any() for pair in each for n in pair) for each in asked], np.bool_
        ),
    )


def neighbours(text: str, spans: Sequence[Sequence[int]]) -> list[Span]:
    """Find the words of a text within three of a span, in order, spans themselves left out.

    >>> [slice(*span) for span in neighbours("A set of youths is singing a new song.", [(2, 5)])]
    [slice(0, 1, None), slice(6, 8, None), slice(9, 15, None), slice(16, 18, None)]
    """
    words = [match.span() for match in _WORD.finditer(text)]
    found = set[Span]()
    for start, end in spans:
        before = [word for word in words if word[1] <= start]
        after = [word for word in words if word[0] >= end]
        found.update((*before[-BESIDE:], *after[:BESIDE]))
    return sorted(
        (start, end)
        for start, end in found
        if not any(start < stop and first < end for first, stop in spans)
    )


def item_of(old: str, old_spans: Sequence[Span], new: str, new_spans: Sequence[Span]) -> str:
    """Write a text without and with a replacement, and where that stands, as one key."""
    return json.dumps([[old, old_spans], [new, new_spans]], ensure_ascii=False)


def _masked(mlm: MaskedLM, encoding: Encoding, word: Span, first: int) -> Iterator[Input]:
    """Yield an input for each token of a word, with it and the later ones masked."""
    tokens = [
        n
        for n, (start, end) in enumerate(encoding.offsets)
        if start < word[1] and word[0] < end and not encoding.special_tokens_mask[n]
    ]
    for row, token in enumerate(tokens, start=first):
        ids = list(encoding.ids)
        for later in tokens[row - first :]:
            ids[later] = mlm.mask_id
        kept, position = mlm.fitted(ids, token, encoding)
        yield Input(row, kept, position, encoding.ids[token], len(kept) < len(ids))


def _items(
    built: Built, config: Config, tagger: Tagger, block: int
) -> tuple[pa.Table, list[list[str]]]:
    """Read a block's replacements of eligible seeds, and for each the items of its texts."""
    pairs = distinct_rows(built.build.variants, ["seed_id", "word_class"])
    rows, changed = changed_texts(built, config, tagger, block, pairs=pairs)
    return rows, [
        [item_of(old, before, new, after) for old, before, new, after in of_row if before]
        for of_row in changed
    ]


def _score(
    built: Built, config: Config, name: str, model: str, share: Share | None = None
) -> dict[str, str]:
    """Add what is missing of a masked LM, or a share of it, to its store; return its identity."""
    mlm = MaskedLM.load(model, name=name, device=config.device, dtype=config.dtype)
    identity = {
        "name": name,
        "revision": mlm.revision,
        "architecture": mlm.architecture,
        "dtype": mlm.dtype,
        "device": mlm.device,
        "scheme": SCHEME,
    }
    store = open_store(built, config, identity)
    score = partial(neighbour_changes, mlm, batch_tokens=config.batch_tokens)
    tagger, blocks = Tagger.load(config.tagger), built.blocks()
    with tqdm(desc=name, unit="text") as bar:
        for block in blocks:
            if share is None or share.looks_at(block, len(blocks)):
                _, items = _items(built, config, tagger, block)
                mine = partial((share or Share()).takes, window=block, windows=len(blocks))
                distinct = dict.fromkeys(item for of_row in items for item in of_row)
                fill(
                    store,
                    store.missing(distinct, mine),
                    lambda some, on_progress: score(some, on_progress=on_progress),
                    bar,
                )
    return identity


def _write(built: Built, config: Config, stores: Sequence[LikelihoodStore]) -> dict[str, int]:
    """Write `neighbours.parquet`, block by block; return the numbers of texts and replacements."""
    keys = ((name, pa.string()) for name in REPLACEMENT_KEY)
    schema = pa.schema([*keys, ("neighbour_change", pa.float32())])
    tagger = Tagger.load(config.tagger)
    counts = {"texts": 0, "windowed": 0, "replacements": 0}
    with atomic(built.build.neighbours) as path, RowGroupWriter(path, schema) as written:
        for block in built.blocks():
            rows, items = _items(built, config, tagger, block)
            distinct = list(dict.fromkeys(item for of_row in items for item in of_row))
            found = [store.of(distinct) for store in stores]
            means = np.mean([each.pll for each in found], axis=0)
            change = dict(zip(distinct, means.tolist(), strict=True))
            counts["replacements"] += len(rows)
            counts["texts"] += len(distinct)
            counts["windowed"] += int(np.any([each.windowed for each in found], axis=0).sum())
            columns = {name: rows[name] for name in REPLACEMENT_KEY}
            values = [float(np.mean([change[item] for item in of_row])) for of_row in items]
            columns["neighbour_change"] = pa.array(values, pa.float32(), from_pandas=True)
            written.write(pa.table(columns, schema=schema))
    return counts


@says
def score_unit(folder: Path, unit: str) -> list[dict[str, str]]:
    """Do a unit of work: add a share of what is missing to the store of each masked LM.

    Returns:
        The identities of the stores.
    """
    (built, plan), share = Built.of_task(folder), Share.parse(unit)
    config = built.config(plan["settings"])
    return [_score(built, config, name, model, share) for name, model in plan["models"].items()]
