"""The dataset card: README.md of a dataset folder, with figures; a pure function of its files."""

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import yaml

from merge_dataset import provenance
from merge_dataset.dataset_columns import COLUMNS
from merge_dataset.engine import connect, parquet
from merge_dataset.files import naming_damage, open_parquet
from merge_dataset.known_sources import source_of
from merge_dataset.layout import (
    PROVENANCE,
    all_configurations,
    collections,
    format_in,
    require_dataset,
    sources,
    split_files,
)
from merge_dataset.provenance import MODEL_KEYS, PARAPHRASES, REPLACEMENTS
from merge_dataset.schema import (
    CONFIG_SUFFIXES,
    DATASET_NAME,
    NLI,
    PARAPHRASE,
    SPLITS,
    ProblemFormat,
    arrow_schema,
    content_hash,
    parse_config_name,
    patterns_of,
)

Kinds = Collection[str]
"""Kinds of variants in a folder: `REPLACEMENTS`, `PARAPHRASES`, or both."""

TEXT: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
"""Part of the card → its texts; some are by kind of variants."""


STATISTICS_START: Final = "<!-- statistics -->"
STATISTICS_END: Final = "<!-- /statistics -->"

_TAGS: Final = ("merge", "mere", "robustness", "generalization", "minimal-pairs")
_NLI_TASK, _OTHER_TASK = "natural-language-inference", "multi-input-text-classification"

_SIZES: Final = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"),
                 (10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))  # fmt: skip


def render(folder: Path) -> str:
    """Render the card of a dataset folder; raise NotADirectoryError or ValueError for others."""
    require_dataset(folder)
    names = sources(folder)
    # First, as this reads every page of the files, and so detects damage.
    matter = front_matter(folder)
    configs = all_configurations(folder)
    made = [provenance.read(folder / name / PROVENANCE) for name in collections(folder)]
    kinds = {provenance.kind_of(record) for record in made}
    configs_of = [record["config"] for record in made if provenance.kind_of(record) == REPLACEMENTS]
    english = "- English only.\n" if REPLACEMENTS not in kinds else ""
    relatives_stay = any(config.get("families", "ignore") == "ignore" for config in configs_of)
    formats = {name: format_in(folder, name) for name in collections(folder)}
    empty = _empty_signals(folder, formats)
    columns = column_meanings(kinds, formats, empty)
    rows = "".join(_of_kinds("rows", kinds))
    null = f" Null throughout: {', '.join(f'`{name}`' for name in empty)}." if empty else ""
    heading = TEXT["columns"]["heading"].format(empty=null)
    facts = {name: source_of(name) for name in names}
    licences = (f"- `{name}` ({fact.title}): {fact.licence}.\n" for name, fact in facts.items())
    # A configuration of one class, if there is one.
    example = next((name for name in configs if parse_config_name(name)[1]), configs[0])
    body = [
        *(f"**{trial}**\n" for trial in dict.fromkeys(map(provenance.trial_of, made)) if trial),
        _introduction(kinds, formats),
        *(f"{good}\n" for good in dict.fromkeys(map(provenance.found_good, made)) if good),
        TEXT["loading"]["text"].format(
            name=DATASET_NAME,
            example=example,
            seeds=SPLITS[0],
            variants=SPLITS[1],
            configurations="".join(_of_kinds("loading", kinds)),
        ),
        heading + _table(("column", "content"), columns.items()),
        f"## Statistics\n\n{rows}\n{statistics_block(folder)}",
        "\n".join(["## How it was made\n", *_of_kinds("making", kinds), ""])
        + "\n".join(map(_making, made)),
        "## Licences\n\nSeeds are problems of the source, and variants are adaptations of them. "
        "Both are under its licence:\n\n" + "".join(licences),
        "".join(["## Limits\n\n", *_of_kinds("limits", kinds), english]).format(
            relatives=TEXT["limits"]["relatives"] * relatives_stay
        ),
        citation_section(names, paraphrases=PARAPHRASES in kinds),
    ]
    header = yaml.safe_dump(matter, sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{header}---\n\n" + "\n".join(body)


def front_matter(folder: Path) -> dict[str, Any]:
    """Make the card's YAML: data for the Hub's lists, and for `load_dataset`."""
    configs = all_configurations(folder)
    facts = [source_of(name) for name in sources(folder)]
    creators = sorted({"machine-generated", *(fact.creators for fact in facts)})
    paraphrased = any(parse_config_name(name)[1] == PARAPHRASE for name in configs)
    formats = [format_in(folder, name) for name in collections(folder)]
    task_ids = {_NLI_TASK if own == NLI else _OTHER_TASK for own in formats}
    infos = {name: _dataset_info(folder, name) for name in configs}
    variants = sum(
        split["num_examples"]
        for name in collections(folder)
        for split in infos[name]["splits"]
        if split["name"] == "variants"
    )
    return {
        "pretty_name": "MERGE-NLI",
        "language": ["en"],
        "license": sorted({licence for fact in facts for licence in fact.licence_ids}),
        "task_categories": ["text-classification"],
        "task_ids": sorted(task_ids),
        "annotations_creators": creators,
        "language_creators": [*creators],  # a copy: YAML would write the same list as an alias
        "multilinguality": ["monolingual"],
        "source_datasets": sorted({fact.source_dataset for fact in facts}),
        "size_categories": [next((s for limit, s in _SIZES if variants < limit), "n>1B")],
        "tags": [
            *_TAGS,
            *(("nli",) if NLI in formats else ()),
            *(("paraphrase", "semantic-sensitivity") if paraphrased else ()),
        ],
        # `datasets` names its cache entry for a folder after this YAML, not after the data:
        # without the digest, data exported anew would go on loading from the old entry.
        "configs": [
            {
                "config_name": name,
                "description": f"{source_of(parse_config_name(name)[0]).title}; content "
                f"{content_hash(folder, name)}",
                "data_files": [
                    {"split": split, "path": paths[0] if len(paths) == 1 else paths}
                    for split, files in split_files(folder, name).items()
                    for paths in [patterns_of(files)]
                ],
            }
            for name in configs
        ],
        "dataset_info": list(infos.values()),
    }


def statistics_block(folder: Path) -> str:
    """Write the figures of configurations (the paper's Table 2), between marks for the check.

    There is a table for each set of labels; the files must be undamaged.
    """
    rows: dict[tuple[str, ...], list[list[str]]] = {}
    for config in all_configurations(folder):
        files, names = split_files(folder, config), format_in(folder, config).labels
        seeds, variants = (parquet(folder / file for file in files[split]) for split in SPLITS)
        with connect() as connection:
            query = f"SELECT label, count(*) FROM {seeds} GROUP BY label"
            labels = dict(connection.execute(query).fetchall())
            query = (
                f"SELECT (SELECT count(*) FROM {variants}), count(DISTINCT draw), count(draw) "
                f"FROM (SELECT unnest(subsamples) AS draw FROM {variants})"
            )
            [(unique, subsamples, draws)] = connection.execute(query).fetchall()
        n_seeds = sum(labels.values())
        if not n_seeds or not draws:
            raise ValueError(
                f"{config}: expected seeds, and variants drawn into subsamples, got "
                f"{n_seeds} seeds and {draws} draws"
            )
        shares = (100 * (labels.get(code, 0) / n_seeds) for code in range(len(names)))
        row = [f"`{config}`", f"{n_seeds:,}", *(f"{share:.1f}" for share in shares)]
        row += [f"{unique:,}", f"{unique / n_seeds:.1f}", f"{draws / subsamples:,.1f}"]
        rows.setdefault(names, []).append(row)
    tables = []
    for names, own in rows.items():
        header = ["configuration", "seeds", *(f"{label} (%)" for label in names)]
        header += ["unique variants", "unique variants per seed", "variants per subsample"]
        tables.append(_table(header, own))
    return f"{STATISTICS_START}\n{chr(10).join(tables)}{STATISTICS_END}\n"


def read_front_matter(card: str) -> dict[str, Any]:
    """Parse the YAML front matter of a card's text."""
    opening, _, rest = card.partition("---\n")
    header, closing, _ = rest.partition("\n---\n")
    try:
        value = yaml.safe_load(header) if closing and not opening else None
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        content = "nothing" if value is None else "a list or a single value"
        raise ValueError(f"no mapping but {content}")
    return value


def _empty_signals(folder: Path, formats: Mapping[str, ProblemFormat]) -> list[str]:
    filled: set[str] = set()
    for name in formats:
        for path in split_files(folder, name)["variants"]:
            with naming_damage(folder / path), open_parquet(folder / path) as file:
                groups = map(file.metadata.row_group, range(file.num_row_groups))
                places = ((group, n) for group in groups for n in range(group.num_columns))
                for column in (group.column(n) for group, n in places):
                    null = column.statistics.null_count if column.is_stats_set else None
                    if null is None or null < column.num_values:
                        filled.add(column.path_in_schema)
    signals = dict.fromkeys(name for own in formats.values() for name in own.signals)
    return [name for name in signals if name not in filled]


def _dataset_info(folder: Path, name: str) -> dict[str, Any]:
    problem_format = format_in(folder, name)
    splits, download_size = [], 0
    for split, files in split_files(folder, name).items():
        num_examples = num_bytes = 0  # size of the rows in Arrow memory, in bytes
        for file in files:
            with naming_damage(folder / file), open_parquet(folder / file) as opened:
                num_examples += opened.metadata.num_rows
                num_bytes += sum(batch.nbytes for batch in opened.iter_batches())
            download_size += (folder / file).stat().st_size
        splits.append({"name": split, "num_bytes": num_bytes, "num_examples": num_examples})
    return {
        "config_name": name,
        "features": [
            {"name": field.name, **_feature(field, problem_format.labels)}
            for field in arrow_schema(problem_format)
        ],
        "splits": splits,
        "download_size": download_size,
        "dataset_size": sum(split["num_bytes"] for split in splits),
    }


def _feature(field: pa.Field, labels: tuple[str, ...]) -> dict[str, Any]:
    """Describe a column; datasets 5 writes `list:`, and 3.6 reads it, too, as a Python list."""
    depth, kind = 0, field.type
    while pa.types.is_list(kind):
        depth, kind = depth + 1, kind.value_type
    inner: Any = "float32" if pa.types.is_float32(kind) else str(kind)
    if field.name in ("label", "annotator_labels"):
        inner = {"class_label": {"names": {str(i): name for i, name in enumerate(labels)}}}
    feature = {"dtype": inner}
    for level in range(depth):
        feature = {"list": feature if level else inner}
    return feature


def _making(made: dict[str, Any]) -> str:
    if provenance.kind_of(made) == PARAPHRASES:
        right = made["problems"]["answered_right"]
        parts = [
            f"{_problems(made)} kept, of which M answers {right:,} right. Seeds with a paraphrase: "
            f"{sum(made['eligible'].values()):,}. Fingerprint: `{made['fingerprint']}`.\n",
            "Text generator:\n",
            _described({**made["generator"], "prompt": made["prompt"]}),
            "NLI model M:\n",
            _described(made["nli_model"]),
            *_settings(made, {k: v for k, v in made["config"].items() if k != "prompt"}),
            "What became of the candidates, by round; each was dropped for the first reason that "
            "holds, or kept:\n",
            *_funnel(made),
        ]
    else:
        parts = _making_replacements(made)
    packages = ", ".join(f"{name} {version}" for name, version in made["packages"].items())
    return "\n".join(
        [f"### `{provenance.collection_of(made)}`\n", *parts, f"Packages: {packages}.\n"]
    )


def _making_replacements(made: dict[str, Any]) -> list[str]:
    eligible = ", ".join(
        f"{count:,} for {CONFIG_SUFFIXES[word_class]}"
        for word_class, count in made["eligible"].items()
    )
    parts = [
        f"{_problems(made)} kept. Eligible seeds: {eligible}. Tagger: {made['tagger']}. "
        f"Ablation: {made['ablation'] or 'none'}. Fingerprint: `{made['fingerprint']}`.\n",
        "Masked language models:\n",
        _table(MODEL_KEYS, ([mlm[key] for key in MODEL_KEYS] for mlm in made["mlms"])),
    ]
    if "signals" in made:
        signals, kind = made["signals"], "mlm" if "mlm" in made["signals"] else "lm"
        what = "Causal language model of the changes of log-likelihood"
        if kind == "mlm":
            what = (
                "Masked language model of the changes of pseudo-log-likelihood, by the scheme "
                f"{signals['scheme']} (Kauf and Ivanova, 2023)"
            )
        parts += [
            f"{what}; {signals['windowed']:,} texts longer than its limit were scored within "
            "windows:\n",
            _table(MODEL_KEYS, [[signals[kind][key] for key in MODEL_KEYS]]),
        ]
    if "neighbours" in made:
        scored = made["neighbours"]
        parts += [
            "Masked language models that scored the words beside each replacement, for `quality` "
            f"(scheme {scored['scheme']}):\n",
            _table(MODEL_KEYS, ([mlm[key] for key in MODEL_KEYS] for mlm in scored["mlms"])),
        ]
    parts += _settings(made, made["config"])
    if changes := " ".join(_changes(made["config"])):
        parts.append(f"{changes}\n")
    if "asked" in made:
        parts.append(
            f"The masked language models were asked {made['asked']['questions']:,} of "
            f"{made['asked']['of']:,} questions: about each shared word in one text first, and "
            "about the other texts where a seed could still become eligible. The suggestions of "
            "words that were not asked about in every text are counted as `out_of_reach`.\n"
        )
    return [
        *parts,
        "What became of the suggestions, by model and word class; each was rejected for the first "
        "reason that holds, or kept:\n",
        *_funnel(made),
    ]


def _problems(made: dict[str, Any]) -> str:
    data, problems = made["source_data"], made["problems"]
    digest = f" (SHA-256 `{data['sha256']}`)" if data["sha256"] else ""
    skipped = problems.get("skipped")
    left_out = f"{skipped:,} that could not be used left out, " if skipped else ""
    return (
        f"Problems: {data['description']}{digest}; {problems['read']:,} read, "
        f"{problems['unlabelled']:,} without a gold label dropped, {left_out}{problems['kept']:,}"
    )


def _settings(made: dict[str, Any], config: dict[str, Any]) -> list[str]:
    meaning = made[provenance.EXPLAINED]["settings"]
    chosen = ((key, value) for key, value in config.items() if value not in (None, {}, []))
    rows = ((key, value, meaning.get(key, "")) for key, value in chosen)
    return ["Settings (the others are unset):\n", _table(("setting", "value", "meaning"), rows)]


def _described(model: dict[str, Any]) -> str:
    return _table(("what", "value"), ((k, v) for k, v in model.items() if v is not None))


def _funnel(made: dict[str, Any]) -> list[str]:
    columns = list(dict.fromkeys(key for row in made["funnel"] for key in row))
    # Counts get commas; models and classes are unchanged.
    rows = (
        [f"{n:,}" if isinstance(n := row.get(key, 0), int) else str(n) for key in columns]
        for row in made["funnel"]
    )
    meaning = made[provenance.EXPLAINED]["funnel"]
    explained = [(f"`{key}`", meaning[key]) for key in columns if key in meaning]
    return [_table(columns, rows), _table(("column", "what it counts"), explained)]


def _table(header: Any, rows: Any) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(value: Any) -> str:
    match value:
        case None:
            text = "none"
        case bool():
            text = str(value).lower()
        case list() | tuple():
            text = ", ".join(map(str, value)) or "none"
        case dict():
            text = ", ".join(f"{k}: {v}" for k, v in value.items()) or "none"
        case _:
            text = str(value)
    return " ".join(text.split()).replace("|", "\\|")


# --- Words ---


def _introduction(kinds: Kinds, formats: Mapping[str, ProblemFormat]) -> str:
    words = TEXT["introduction"]
    if REPLACEMENTS not in kinds:
        text = f"{words['paraphrases']}\n{words['rule']}"
    else:
        both = words["both"] if PARAPHRASES in kinds else ""
        text = f"{words['replacements']}{words['rule']}{both}"
    text = text.replace("{example}", words["example"])
    rows = "".join(
        f"| `{name}` | {', '.join(own.fields)} | {', '.join(own.labels)} |\n"
        for name, own in formats.items()
        if own != NLI
    )
    return f"{text}{words['other_formats']}{rows}" if rows else text


def column_meanings(
    kinds: Kinds, formats: Mapping[str, ProblemFormat], empty: Collection[str] = ()
) -> dict[str, str]:
    """Map names of columns, as code, to their meanings; leave out empty columns."""
    fields = dict.fromkeys(one.fields for one in formats.values())
    labels = dict.fromkeys(one.labels for one in formats.values())
    numbers = (", ".join(f"{n} {label}" for n, label in enumerate(names)) for names in labels)
    label_text, meanings = "; or ".join(numbers), {}
    for column in COLUMNS:
        if column.optional and not any(column.name in one.optional for one in formats.values()):
            continue
        groups = dict.fromkeys(column.names(names) for names in fields)
        if {name for group in groups for name in group} <= {*empty}:
            continue
        names = "; ".join(", ".join(f"`{name}`" for name in group) for group in groups)
        meaning = column.meaning
        if PARAPHRASES in kinds and column.in_paraphrases:
            others = f"{meaning}; of a paraphrase: " if REPLACEMENTS in kinds else ""
            meaning = f"{others}{column.in_paraphrases}"
        meanings[names] = meaning.format(labels=label_text)
    return meanings


def _of_kinds(part: str, kinds: Kinds) -> list[str]:
    return [text for kind, text in TEXT[part].items() if kind in kinds]


def _changes(config: Mapping[str, Any]) -> Iterator[str]:
    families = config.get("families")
    if families in ("reject", "inflect"):
        yield TEXT["families"][families]
    if config.get("repair_articles"):
        yield 'Where "a" or "an" stands before a replaced word, it is made to fit.'
    if families == "inflect" or config.get("repair_articles"):
        yield TEXT["families"]["pairs"]


def citation_section(names: Iterable[str], *, paraphrases: bool) -> str:
    """Write the section of BibTeX entries: for the methods, then for sources with an entry."""
    words = TEXT["citations"]
    entries = [words["merge"], *([words["sensitivity"]] if paraphrases else [])]
    entries += [citation for name in names if (citation := source_of(name).citation)]
    return "## Citation\n\n```bibtex\n" + "\n".join(dict.fromkeys(entries)) + "```\n"
