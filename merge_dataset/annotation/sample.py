"""A sample of variants to judge, stratified by source, class and masked LM.

An equal number of variants is drawn from each source and class, as in the MERGE paper (section 4),
spread as evenly as possible over the masked LMs that validated them (Fig. 9).
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from merge_dataset import layout
from merge_dataset.files import draw_rank, open_parquet, read_row_groups, read_schema, read_table
from merge_dataset.schema import PARAPHRASE, changed_words, format_of, parse_config_name
from merge_dataset.show import marked, spans_in_seed

PER_CLASS: Final = 100
"""Number of variants of each source and class (paper, section 4)."""

Spans = list[list[int]]
"""Half-open spans [start, end) in characters, ascending."""


@dataclass(frozen=True, slots=True)
class Item:
    """A variant to annotate, with its seed; texts and spans are by name of field."""

    variant_id: str
    seed_id: str
    source: str
    word_class: str
    label: str
    mlms: list[str]
    mlms_by_field: dict[str, list[str]]
    """Name of a text → masked LMs that validated the replacement in it."""
    stratum: dict[str, str | None]
    """`class`, `source` and `mlm`, the masked LM for which it was drawn (none for paraphrases)."""
    chance: float | None
    """Probability of being drawn; see `chances`; None if not known."""
    original: str
    replacement: str
    seed_texts: dict[str, str]
    variant_texts: dict[str, str]
    seed_spans: dict[str, Spans]
    variant_spans: dict[str, Spans]

    @property
    def cell(self) -> tuple[str, str]:
        """Its source and class."""
        return self.source, self.word_class


def choose(dataset: Path, wanted: Sequence[str] = ()) -> list[str]:
    """Choose configurations of single classes: by default replacements; paraphrases if named."""
    layout.require_dataset(dataset)
    known = layout.all_configurations(dataset)
    layout.check_configurations(dataset, wanted)
    named = wanted or [name for name in known if parse_config_name(name)[1] != PARAPHRASE]
    chosen = set()
    for name in named:
        source, variant_class = parse_config_name(name)
        chosen |= {name} if variant_class else set(layout.configurations(dataset, source)[1:])
    if not chosen:
        raise ValueError(
            f"{dataset}: expected replacements of some class of words, found none; "
            f"name other configurations with --config: {', '.join(known)}"
        )
    configs = [name for name in known if name in chosen]
    paraphrases = [name for name in configs if parse_config_name(name)[1] == PARAPHRASE]
    if paraphrases and (others := [name for name in configs if name not in paraphrases]):
        raise ValueError(
            f"--config: expected paraphrases, which are judged by whether they mean the same, or "
            f"replacements, which are scored, got {', '.join(paraphrases)} and "
            f"{', '.join(others)}; make a session of each"
        )
    return configs


def draw(
    dataset: Path,
    configs: Sequence[str] = (),
    *,
    per_class: int = PER_CLASS,
    per_source: int | None = None,
    rng_seed: int = 0,
) -> tuple[list[Item], list[dict[str, Any]]]:
    """Draw items per class, or `per_source` (paper, section 4); also return the population."""
    pools: dict[str, list[str]] = {}
    for config in choose(dataset, configs):
        pool = config if per_source is None else parse_config_name(config)[0]
        pools.setdefault(pool, []).append(config)
    quota = per_class if per_source is None else per_source
    items: list[Item] = []
    population: list[dict[str, Any]] = []
    for pool, members in tqdm(pools.items(), desc="sampling", leave=False, disable=None):
        counts: dict[str, dict[str, Any]] = {}
        # The first of each masked LM by rank, and one more for `chances`.
        best: defaultdict[str, list[tuple[bytes, str]]] = defaultdict(list)
        for config in members:
            by_mlm, by_number = Counter[str](), Counter[int]()
            for path in layout.split_files(dataset, config)["variants"]:
                for table in read_row_groups(dataset / path, ["variant_id", "mlms"]):
                    for variant, mlms in zip(*table.to_pydict().values(), strict=True):
                        by_mlm.update(mlms)
                        by_number[len(mlms)] += 1
                        rank = draw_rank(rng_seed, variant)
                        for mlm in mlms or [""]:  # paraphrases have no masked LMs
                            best[mlm].append((rank, variant))
                    for mlm, ranked in best.items():
                        best[mlm] = heapq.nsmallest(quota + 1, ranked)
            counts[config] = {
                "variants": by_number.total(),
                "variants_by_mlm": dict(sorted(by_mlm.items())),
                "variants_by_number_of_mlms": {str(n): by_number[n] for n in sorted(by_number)},
            }
        mlms = sorted(best, key=lambda mlm: draw_rank(rng_seed, f"{pool}\0{mlm}"))
        candidates = {mlm: [variant for _, variant in best[mlm]] for mlm in mlms}
        drawn = spread(candidates, quota)
        chance = chances(drawn, candidates, rng_seed)
        for config in members:
            own = items_of(dataset, config, drawn)
            for item in own:
                name, stratum = item.variant_id, item.stratum
                stratum |= {"mlm": drawn[name] or None}
                items.append(replace(item, chance=chance[name]))
            source, word_class = parse_config_name(config)
            cell = {"source": source, "class": word_class, "seeds": count_seeds(dataset, config)}
            population.append(cell | counts[config] | {"sampled": len(own)})
    return items, population


def count_seeds(dataset: Path, config: str) -> int:
    """Count the seeds of a configuration."""
    files = layout.split_files(dataset, config)["seeds"]
    return sum(open_parquet(dataset / file).metadata.num_rows for file in files)


def spread(candidates: Mapping[str, Sequence[str]], quota: int) -> dict[str, str]:
    """Assign variants evenly to masked LMs that validated them: variant → LM.

    The LMs take turns, each taking its next free candidate. An LM without a free candidate takes
    over another LM's variant if that one can get a new variant. `quota` candidates per LM suffice.

    >>> spread({"a": ["1", "2", "3"], "b": ["1"]}, 2)
    {'1': 'b', '2': 'a'}
    """
    owner: dict[str, str] = {}

    def give_one_more(mlm: str) -> bool:
        """Assign a variant by the shortest chain of takeovers that ends in a free one."""
        chain: dict[str, tuple[str, str] | None] = {mlm: None}  # LM → (its taker, what it takes)
        queue = [mlm]
        for taker in queue:
            free = next((variant for variant in candidates[taker] if variant not in owner), None)
            if free is not None:
                owner[free] = taker
                while step := chain[taker]:
                    taker, variant = step
                    owner[variant] = taker
                return True
            for variant in candidates[taker]:
                if owner[variant] not in chain:
                    chain[owner[variant]] = (taker, variant)
                    queue.append(owner[variant])
        return False

    unsated = list(candidates)
    while unsated and len(owner) < quota:
        unsated = [mlm for mlm in unsated if len(owner) == quota or give_one_more(mlm)]
    return owner


def chances(
    drawn: Mapping[str, str], candidates: Mapping[str, Sequence[str]], rng_seed: int
) -> dict[str, float]:
    """Compute the probability, 0–1, that each variant of `spread` was drawn, for weights.

    All variants of a masked LM up to some rank are drawn. So a variant is drawn if its own rank, a
    pseudo-random number, is below the highest of these limits of its LMs. `candidates` are sorted
    by rank: one more than drawn, or all.

    >>> candidates = {"a": ["5", "3"], "b": ["5"]}
    >>> chances({"5": "a"}, candidates, 0)["5"]  # all there are of b
    1.0
    >>> f"{chances({'5': 'a'}, {'a': ['5', '3']}, 0)['5']:.3f}"  # where the rank of 3 lies
    '0.606'
    """
    highest = dict.fromkeys(drawn, 0.0)
    for own in candidates.values():
        first_left = next((variant for variant in own if variant not in drawn), None)
        limit = 1.0
        if first_left is not None:  # its rank as a share of all possible ranks
            rank = draw_rank(rng_seed, first_left)
            limit = float(int.from_bytes(rank) / 256 ** len(rank))
        highest |= {v: max(highest[v], limit) for v in own if v in highest}
    return highest


def items_of(dataset: Path, config: str, variant_ids: Collection[str]) -> list[Item]:
    """Read those of some variants that a configuration has, by id, with their seeds."""
    files = layout.split_files(dataset, config)
    problem_format = format_of(read_schema(dataset / files["variants"][0]))
    fields, items = problem_format.fields, []

    def rows_with(split: str, column: str, values: Collection[str]) -> list[dict[str, Any]]:
        chosen = pc.field(column).isin(sorted(values))
        tables = [read_table(dataset / path, where=chosen) for path in files[split]]
        ordered: list[dict[str, Any]] = pa.concat_tables(tables).sort_by(column).to_pylist()
        return ordered

    rows = rows_with("variants", "variant_id", variant_ids)
    seeds = rows_with("seeds", "seed_id", {row["seed_id"] for row in rows})
    by_seed = {row["seed_id"]: row for row in seeds}
    copied = ("variant_id", "seed_id", "source", "word_class", "mlms", "original", "replacement")
    for row in rows:
        seed, spans = by_seed.get(row["seed_id"]), {f: row[f"{f}_spans"] for f in fields}
        pairs = {row["replacement"]: row["original"]}
        if row["word_class"] != PARAPHRASE:
            pairs = changed_words(row["original"], row["replacement"])
        words = {f: [row[f][start:end] for start, end in spans[f]] for f in fields}
        if (
            seed is None
            or not {*chain.from_iterable(words.values())} <= {*pairs}
            or any(marked(row[f], spans[f], pairs.__getitem__) != seed[f] for f in fields)
        ):
            raise ValueError(
                f"{dataset}: {config}: expected a variant that is its seed once the originals are "
                f"put back, got {row['variant_id']!r}; `merge-nli check {dataset}` says more"
            )
        items.append(
            Item(
                **{name: row[name] for name in copied},
                label=problem_format.labels[row["label"]],
                mlms_by_field={field: row[f"{field}_mlms"] for field in fields},
                stratum={"class": row["word_class"], "source": row["source"]},
                chance=None,
                seed_texts={field: seed[field] for field in fields},
                variant_texts={field: row[field] for field in fields},
                seed_spans={
                    f: spans_in_seed(spans[f], [len(pairs[word]) for word in words[f]])
                    for f in fields
                },
                variant_spans=spans,
            )
        )
    return items
