"""Annotation sessions: a stratified sample of a dataset's variants in a folder.

An equal number of variants is drawn from each source and class, as in the MERGE paper (section 4),
spread as evenly as possible over the masked LMs that validated them (Fig. 9). `session.json`
describes the population, for the weights of figures; `sample.jsonl` has the variants; `answers/`
has the filled files.
"""

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from merge_dataset.files import (
    digest_of_file,
    digests,
    draw_rank,
    read_record,
    read_row_groups,
    read_schema,
    read_table,
    read_text,
    target_of,
    write_record,
    write_text,
)
from merge_dataset.json_lines import parse_object
from merge_dataset.layout import (
    all_configurations,
    configurations,
    require_configurations,
    require_dataset,
    split_files,
)
from merge_dataset.locks import LOCK, working_in
from merge_dataset.numbered_files import patterns_of
from merge_dataset.schema import PARAPHRASE, SPLITS, changed_words, format_of, parse_config_name
from merge_dataset.show import marked, spans_in_seed

SCORES: Final = "scores"
EQUIVALENCE: Final = "equivalence"

JudgementKind = Literal["scores", "equivalence"]
"""Fluency and reasoning (MERGE paper, A.3), or equivalence (Arakelyan et al. 2024, 3.1)."""

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
    chance: float
    """Probability of being drawn; see `chances`."""
    original: str
    replacement: str
    seed_texts: dict[str, str]
    variant_texts: dict[str, str]
    seed_spans: dict[str, Spans]
    variant_spans: dict[str, Spans]


def choose(dataset: Path, wanted: Sequence[str] = ()) -> list[str]:
    """Choose configurations of single classes: by default replacements; paraphrases if named."""
    require_dataset(dataset)
    known = all_configurations(dataset)
    require_configurations(dataset, known, wanted)
    named = wanted or [name for name in known if parse_config_name(name)[1] != PARAPHRASE]
    chosen = set()
    for name in named:
        source, variant_class = parse_config_name(name)
        chosen |= {name} if variant_class else set(configurations(dataset, source)[1:])
    if not chosen:
        raise ValueError(
            f"{dataset}: expected replacements of some class of words, found none; "
            f"name other configurations with --config: {', '.join(known)}"
        )
    return [name for name in known if name in chosen]


def draw(
    dataset: Path,
    configs: Sequence[str] = (),
    *,
    per_class: int = PER_CLASS,
    per_source: int | None = None,
    rng_seed: int = 0,
) -> tuple[list[Item], list[dict[str, Any]]]:
    """Draw items per class, or `per_source` (paper, section 4); also return the population."""
    chosen = choose(dataset, configs)
    items: list[Item] = []
    population: list[dict[str, Any]] = []
    quota = per_class if per_source is None else per_source
    pools: dict[str, list[str]] = {}
    for config in chosen:
        name = config if per_source is None else parse_config_name(config)[0]
        pools.setdefault(name, []).append(config)
    with tqdm(total=len(pools), desc="sampling", leave=False, disable=None) as bar:
        for name, configs in pools.items():
            found = {}
            for config in configs:
                paths = split_files(dataset, config)
                found[config] = tuple([dataset / file for file in paths[split]] for split in SPLITS)
            counted = {config: _candidates(of[1], quota, rng_seed) for config, of in found.items()}
            candidates: dict[str, list[str]] = {}
            for _, own in counted.values():
                for mlm, first in own.items():
                    both = [*candidates.get(mlm, ()), *first]
                    both.sort(key=lambda variant: draw_rank(rng_seed, variant))
                    candidates[mlm] = both[: quota + 1]
            mlms = sorted(candidates, key=lambda mlm: draw_rank(rng_seed, f"{name}\0{mlm}"))
            drawn = spread({mlm: candidates[mlm] for mlm in mlms}, quota)
            chance = chances(drawn, candidates, rng_seed)
            for config, (seeds, variants) in found.items():
                try:
                    mine = list(_items(seeds, variants, drawn, chance))
                except KeyError as error:
                    raise ValueError(
                        f"{_named(variants)}: expected a column {error.args[0]}, there and in "
                        f"{Path(_named(seeds)).name}, found none; `merge-nli check {dataset}` says "
                        "more"
                    ) from error
                items += mine
                source, word_class = parse_config_name(config)
                population.append(
                    {
                        "source": source,
                        "class": word_class,
                        "seeds": sum(len(read_table(path, ["seed_id"])) for path in seeds),
                        **counted[config][0],
                        "sampled": len(mine),
                    }
                )
            bar.update()
    return items, population


# --- Drawing ---


def spread(candidates: Mapping[str, Sequence[str]], quota: int) -> dict[str, str]:
    """Assign variants evenly to masked LMs that validated them: variant → LM.

    The LMs take turns, each taking its next free candidate. An LM without a free candidate takes
    over another LM's variant if that one can get a new variant. `quota` candidates per LM suffice.

    >>> spread({"a": ["1", "2", "3"], "b": ["1"]}, 2)
    {'1': 'b', '2': 'a'}
    """
    owner: dict[str, str] = {}
    unsated = list(candidates)
    while unsated and len(owner) < quota:
        unsated = [
            mlm for mlm in unsated if len(owner) == quota or _give_one_more(mlm, candidates, owner)
        ]
    return owner


def _give_one_more(
    mlm: str, candidates: Mapping[str, Sequence[str]], owner: dict[str, str]
) -> bool:
    """Assign `mlm` a variant by the shortest chain of takeovers that ends in a free variant."""
    chain: dict[str, tuple[str, str] | None] = {mlm: None}  # LM → (its taker, what it takes)
    queue = [mlm]
    for taker in queue:
        free = next((variant for variant in candidates[taker] if variant not in owner), None)
        if free is not None:
            owner[free] = taker
            to = taker
            while step := chain[to]:
                to, variant = step
                owner[variant] = to
            return True
        for variant in candidates[taker]:
            if owner[variant] not in chain:
                chain[owner[variant]] = (taker, variant)
                queue.append(owner[variant])
    return False


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
    found = dict.fromkeys(drawn, 0.0)
    for own in candidates.values():
        first_left = next((variant for variant in own if variant not in drawn), None)
        limit = 1.0
        if first_left is not None:  # its rank as a share of all possible ranks
            rank = draw_rank(rng_seed, first_left)
            limit = float(int.from_bytes(rank) / 256 ** len(rank))
        found |= {v: max(found[v], limit) for v in own if v in found}
    return found


def _candidates(
    paths: Sequence[Path], quota: int, rng_seed: int
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Count the variants in files, and list each masked LM's first `quota` + 1 by rank."""
    variants, by_mlm, by_mlms = 0, Counter[str](), Counter[int]()
    best: dict[str, list[tuple[bytes, str]]] = defaultdict(list)
    names = ["variant_id", "mlms"]
    for table in (table for path in paths for table in read_row_groups(path, names)):
        ranked: dict[str, list[tuple[bytes, str]]] = defaultdict(list)
        rows = zip(table["variant_id"].to_pylist(), table["mlms"].to_pylist(), strict=True)
        for variant, mlms in rows:
            variants += 1
            by_mlm.update(mlms)
            by_mlms[len(mlms)] += 1
            rank = draw_rank(rng_seed, variant)
            for mlm in mlms or [""]:  # paraphrases have no masked LMs
                ranked[mlm].append((rank, variant))
        for mlm, more in ranked.items():
            best[mlm] = heapq.nsmallest(quota + 1, [*best[mlm], *more])
    counts = {
        "variants": variants,
        "variants_by_mlm": dict(sorted(by_mlm.items())),
        "variants_by_number_of_mlms": {str(n): by_mlms[n] for n in sorted(by_mlms)},
    }
    return counts, {mlm: [variant for _, variant in first] for mlm, first in best.items()}


# --- Items ---


def _items(
    seeds: Sequence[Path],
    variants: Sequence[Path],
    drawn: Mapping[str, str],
    chance: Mapping[str, float],
) -> Iterator[Item]:
    problem_format = format_of(read_schema(variants[0]))
    fields = problem_format.fields
    rows = _rows(variants, "variant_id", drawn)
    originals = {row["seed_id"] for row in rows}
    by_seed = {row["seed_id"]: row for row in _rows(seeds, "seed_id", originals)}
    for row in rows:
        if row["seed_id"] not in by_seed:
            raise ValueError(f"{_named(seeds)}: expected the seed {row['seed_id']!r}, found none")
        try:
            seed, word_class = by_seed[row["seed_id"]], row["word_class"]
            words = row["original"], row["replacement"]
            pairs = {words[1]: words[0]} if word_class == PARAPHRASE else changed_words(*words)
            spans = {field: row[f"{field}_spans"] for field in fields}
            yield Item(
                variant_id=row["variant_id"],
                seed_id=row["seed_id"],
                source=row["source"],
                word_class=word_class,
                label=problem_format.labels[row["label"]],
                mlms=row["mlms"],
                mlms_by_field={field: row[f"{field}_mlms"] for field in fields},
                stratum={
                    "class": word_class,
                    "source": row["source"],
                    "mlm": drawn[row["variant_id"]] or None,
                },
                chance=chance[row["variant_id"]],
                original=row["original"],
                replacement=row["replacement"],
                seed_texts={field: seed[field] for field in fields},
                variant_texts={field: row[field] for field in fields},
                seed_spans={
                    field: original_spans(seed[field], row[field], spans[field], pairs)
                    for field in fields
                },
                variant_spans=spans,
            )
        except ValueError as error:
            raise ValueError(
                f"{_named(variants)}: {row['variant_id']!r}: {error}; `merge-nli check` says more"
            ) from error


def _rows(paths: Sequence[Path], column: str, values: Iterable[str]) -> list[dict[str, Any]]:
    """Read the rows whose column has one of the values, sorted by it."""
    wanted = pa.array(sorted(values), pa.string())
    tables = (table for path in paths for table in read_row_groups(path))
    rows = (row for t in tables for row in t.filter(pc.is_in(t[column], wanted)).to_pylist())
    return sorted(rows, key=lambda row: str(row[column]))


def _named(paths: Sequence[Path]) -> str:
    """Write the name of a split's file, or a pattern for several files."""
    return patterns_of([str(path) for path in paths])[0]


def original_spans(
    seed_text: str, variant_text: str, spans: Spans, pairs: Mapping[str, str]
) -> Spans:
    """Find the spans in the seed of the words that were replaced."""
    words = [variant_text[start:end] for start, end in spans]
    for span, word in zip(spans, words, strict=True):
        if word not in pairs:
            raise ValueError(f"expected one of {sorted(pairs)} at {span}, got {word!r}")
    if marked(variant_text, spans, pairs.__getitem__) != seed_text:
        raise ValueError(f"expected {seed_text!r} with words replaced, got {variant_text!r}")
    return spans_in_seed(spans, [len(pairs[word]) for word in words])


# --- The folder ---

SESSION: Final = "session.json"
SAMPLE: Final = "sample.jsonl"

_KEYS: Final = ("configurations", "dataset", "files", "items", "kind", "per_class", "population",
                "rng_seed", "sample_sha256")  # fmt: skip
_DIGEST: Final = "sha256"


@dataclass(frozen=True, slots=True)
class Session:
    """Contents of a session folder."""

    folder: Path
    items: dict[str, Item]
    """Variant id → item, in the order of the file."""
    description: dict[str, Any]
    """Contents of `session.json`."""

    @property
    def kind(self) -> JudgementKind:
        """The kind of judgement that is asked for."""
        kind: JudgementKind = self.description["kind"]
        return kind


def open_session(
    folder: Path,
    dataset: Path | None = None,
    configs: Sequence[str] = (),
    *,
    per_class: int | None = None,
    per_source: int | None = None,
    rng_seed: int | None = None,
) -> Session:
    """Continue a folder's session, or draw a new one; options are those of `draw`, None for any."""
    if (folder / SESSION).is_file():
        session = read_session(folder)
        wanted = {"per_class": per_class, "per_source": per_source, "rng_seed": rng_seed}
        _require_same(session, dataset, configs, wanted)
        return session
    if dataset is None:
        raise FileNotFoundError(
            f"{folder}: expected a session folder with {SESSION}, found none; name the dataset "
            f"folder to draw a sample from, as in `merge-nli annotate merge-nli --out {folder}`"
        )
    # Parts of an interrupted session may be there.
    there = {target_of(path) or path for path in folder.iterdir()} if folder.is_dir() else set()
    foreign = {path for path in there if not path.name.startswith(LOCK)}
    foreign -= {folder / SAMPLE, folder / SESSION}
    if foreign or (folder.exists() and not folder.is_dir()):
        raise FileExistsError(
            f"{folder}: expected an annotation session, an empty folder or none, got something "
            f"else; name another --out"
        )
    chosen = choose(dataset, configs)
    kind = _kind_of(chosen)
    with working_in(folder):
        if not (folder / SESSION).is_file():  # otherwise another command has drawn it meanwhile
            size = PER_CLASS if per_class is None else per_class
            items, population = draw(
                dataset, chosen, per_class=size, per_source=per_source, rng_seed=rng_seed or 0
            )
            description = {
                "format": 1,
                "kind": kind,
                "dataset": dataset.resolve().name,
                "files": _digests(dataset, chosen),
                "configurations": chosen,
                "per_class": None if per_source else size,
                **({"per_source": per_source} if per_source else {}),
                "rng_seed": rng_seed or 0,
                "items": len(items),
                "population": population,
            }
            lines = [json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in items]
            write_text(folder / SAMPLE, "".join(lines))
            description["sample_sha256"] = digest_of_file(folder / SAMPLE)
            # Written last, so a folder with a description is complete.
            write_record(folder / SESSION, description, digest_key=_DIGEST)
    return open_session(
        folder, dataset, configs, per_class=per_class, per_source=per_source, rng_seed=rng_seed
    )


def _kind_of(configs: Sequence[str]) -> JudgementKind:
    """Return the kind of judgement that is asked for in these configurations."""
    paraphrases = [name for name in configs if parse_config_name(name)[1] == PARAPHRASE]
    if not paraphrases:
        return SCORES
    if len(paraphrases) < len(configs):
        others = [name for name in configs if name not in paraphrases]
        raise ValueError(
            f"--config: expected paraphrases, which are judged by whether they mean the same, or "
            f"replacements, which are scored, got {', '.join(paraphrases)} and "
            f"{', '.join(others)}; make a session of each"
        )
    return EQUIVALENCE


def read_session(folder: Path) -> Session:
    """Read a session folder."""
    if not (folder / SESSION).is_file():
        raise FileNotFoundError(
            f"{folder}: expected a session folder with {SESSION}, found none; restore it from a "
            f"copy, or name the annotators' files instead of the folder"
        )
    path = folder / SESSION
    description = read_record(path, *_KEYS, digest_key=_DIGEST)
    path = folder / SAMPLE
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected the items of the session, found no file")
    if description["sample_sha256"] != digest_of_file(path):
        raise ValueError(
            f"{path}: expected the items that were drawn, got something else: the file is damaged "
            f"or was edited; restore it from a copy"
        )
    items: dict[str, Item] = {}
    # Split at "\n" only: `str.splitlines` also splits at U+2028 and others, which texts contain.
    for number, line in enumerate(read_text(path).removesuffix("\n").split("\n"), start=1):
        try:
            item = Item(**parse_object(line))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: line {number}: expected an item: {error}") from error
        items[item.variant_id] = item
    return Session(folder, items, description)


def _digests(dataset: Path, configs: Sequence[str]) -> dict[str, str]:
    """Compute the SHA-256 of each file of variants."""
    names = [name for config in configs for name in split_files(dataset, config)["variants"]]
    return digests({name: dataset / name for name in names})


def _require_same(
    session: Session, dataset: Path | None, configs: Sequence[str], drawn: Mapping[str, int | None]
) -> None:
    """Raise ValueError for another sample, as some answers would be to variants not in it."""
    has = session.description
    if configs and dataset is None:
        raise ValueError("--config: expected the dataset folder with it, got none")
    wanted: dict[str, object] = {name: value for name, value in drawn.items() if value is not None}
    if dataset is not None:
        chosen = choose(dataset, configs or has["configurations"])
        wanted |= {"configurations": chosen, "files": _digests(dataset, chosen)}
    for name, value in wanted.items():
        if value != has.get(name):
            drawn_with = "" if name == "files" else f" ({has.get(name)})"
            raise ValueError(
                f"{session.folder}: expected the {name} that its sample was drawn with"
                f"{drawn_with}, got others; go on without that option, or take another --out for "
                f"another sample"
            )
