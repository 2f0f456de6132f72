"""Settings of generation runs: from a recipe, overlaid by an ablation, then by the user."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, Self

from merge_dataset.dataset_columns import LIMITS, OF_WORDS, OPTIONAL
from merge_dataset.files import read_text, write_text
from merge_dataset.schema import (
    DEMO_SOURCE,
    KNOWN_SOURCES,
    LABELS,
    NLI,
    WORD_CLASSES,
    ProblemFormat,
    is_source,
)
from merge_dataset.settings import (
    INPUT,
    RUNNING,
    check_members,
    check_settings,
    from_mapping,
    parse_names,
    parse_pairs,
    parse_toml,
    setting,
    setting_of,
    to_mapping,
)
from merge_metric.models.pair_model import ModelRequest

RECIPES: Final = ("paper-v2", "strict", "clean", "paper-v1", "poster", "demo", "try")
"""Names of the bundled recipes, the default first."""

BUNDLED_MLM: Final = "bert-tiny-mlm"

_PROBLEMS, _MODELS = "Problems", "Masked language models"
_FILTERS = "Filters and samples"
_BOTH = "build generate"
_SIGNALS = "Limits on signals: replacements below them are left out"

# Settings of problems, and of problems that are not NLI problems.
_problem: Final[Any] = partial(setting, panel=_PROBLEMS, commands="suggest paraphrase")
_seldom: Final[Any] = partial(_problem, None, rare=True)
_format: Final[Any] = partial(
    setting, panel=_PROBLEMS, commands="suggest", parse=parse_names, omit_if_default=True
)
_model: Final[Any] = partial(setting, panel=_MODELS, commands="suggest")
# Changes of more than the word, which the paper does not have.
_beyond: Final[Any] = partial(
    setting,
    commands="suggest build",
    panel="Beyond the paper's limits",
    omit_if_default=True,
    rare=True,
)
# Limits on signals (signals.md), before eligibility: None, or False, lets all pass.
_limit: Final[Any] = partial(setting, commands=_BOTH, panel=_SIGNALS, omit_if_default=True)
_least: Final[Any] = partial(_limit, None, rare=True)
_flag: Final[Any] = partial(_limit, False, rare=True)
# Eligibility and sampling; the machine, and where things lie.
_filter: Final[Any] = partial(setting, commands=_BOTH, panel=_FILTERS)
_judged: Final[Any] = partial(_filter, omit_if_default=True, commands="build")
_machine: Final[Any] = partial(setting, panel=RUNNING, affects_output=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSettings:
    """Settings of the source of problems (D15): base class of the settings of every kind of run."""

    source: str = _problem("", f"{', '.join(KNOWN_SOURCES)}, or yours (else snli).")
    """Name of the problems; required with `data` and `dataset`, as only the user knows it then."""
    title: str | None = _problem(None, "Title of the problems, for the card.", omit_if_default=True)
    data: str | None = _problem(
        None, "File (.csv, .jsonl, …), glob or folder.", affects_output=False
    )
    dataset: str | None = _problem(None, "Dataset on the Hub, file or folder.")
    dataset_config: str | None = _seldom("Configuration of that dataset.")
    split: str | None = _seldom("Split of that dataset.")
    revision: str | None = _seldom("Revision of that dataset on the Hub.")
    premise_column: str | None = _problem(None, "Column of the premise.")
    hypothesis_column: str | None = _problem(None, "Column of the hypothesis.")
    label_column: str | None = _problem(None, "Column of the label.")
    id_column: str | None = _seldom("Column of the id.")
    label_map: Mapping[str, str] = _problem(
        {},
        "Labels: theirs=ours,…; theirs= is none.",
        parse=lambda text: parse_pairs(text.split(","), "theirs=ours,…"),
    )
    limit: int | None = _problem(None, "Only the first N problems.", minimum=1, metavar="N")
    """Problems without a label are not counted."""
    skip_bad_rows: bool = _problem(
        False,
        "Leave out rows that cannot be used, and list them; by default they are an error.",
        omit_if_default=True,
        rare=True,
    )
    fields: tuple[str, ...] = _format(NLI.fields, "Texts of other tasks: question,answer.")
    labels: tuple[str, ...] = _format((), "Their labels, such as yes,no.")
    shared_fields: tuple[str, ...] = _format(
        (), "The texts that have to share a word; by default all.", rare=True
    )
    field_columns: Mapping[str, str] | None = _format(
        None,
        "Column of a text, such as context=passage; may be repeated.",
        option="--field-column",
        rare=True,
        parse=partial(parse_pairs, form="field=column"),
        repeated=True,
    )
    """Columns of texts that have another name than their field."""

    @property
    def problem_format(self) -> ProblemFormat:
        """The format of the problems."""
        is_nli = self.fields == NLI.fields
        labels = self.labels or (LABELS if is_nli else ())
        return ProblemFormat(self.fields, labels).with_optional(self.optional_columns)

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Optional columns of the dataset."""
        return ()

    @property
    def sharing(self) -> tuple[int, ...] | None:
        """Numbers of the texts that have to share a word; None if all have to."""
        numbers = tuple(n for n, field in enumerate(self.fields) if field in self.shared_fields)
        return numbers if len(numbers) < len(self.fields) and numbers else None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a `config.toml` as `to_toml` wrote it."""
        return from_mapping(cls, parse_toml(read_text(path), str(path)))

    def to_toml(self) -> str:
        """Write the settings as TOML in the order of the fields; unset ones are left out."""
        import tomli_w

        values = to_mapping(self)
        values["label_map"] = dict(sorted(self.label_map.items()))
        return tomli_w.dumps({k: v for k, v in values.items() if v not in (None, {})})

    def write(self, path: Path) -> None:
        """Write the settings to a `config.toml`."""
        write_text(path, self.to_toml())

    def output_settings(self) -> dict[str, Any]:
        """Return the settings that decide a run's results, without paths and machine settings."""
        values = {**to_mapping(self, affects_output=True), "label_map": dict(self.label_map)}
        return {k: v for k, v in values.items() if (k, v) != ("with_columns", ())}


def check_problem_settings(settings: ProblemSettings) -> None:
    """Check source, fields, labels and columns; a source without a name becomes SNLI."""
    given = [place for place in (settings.data, settings.dataset) if place is not None]
    is_nli, source, fields = settings.fields == NLI.fields, settings.source, settings.fields
    object.__setattr__(settings, "source", source or "snli")
    labels = settings.labels or LABELS
    ProblemFormat(fields, labels)  # checks its values itself
    if settings.labels or is_nli:
        check_members("label_map", [v for v in settings.label_map.values() if v], labels)
    check_members("shared_fields", settings.shared_fields, fields)
    check_members("field_columns", settings.field_columns or (), fields)
    sources, texts = ", ".join(KNOWN_SOURCES), ", ".join(fields)
    require(
        (
            len(given) < 2 and "" not in given,
            f"`data`: expected a file or folder, or a data set as `dataset`, got {given}",
        ),
        (
            not given or source not in ("", DEMO_SOURCE),
            f"`source`: expected a name of your own for the problems of {''.join(given)}, or "
            f"one of {sources} if they are from there, got {source!r}",
        ),
        (
            is_source(settings.source),
            f"source: expected a name of lower-case letters, digits and hyphens such as anli-r1, "
            f"got {source!r}",
        ),
        (
            len(set(settings.shared_fields)) != 1,
            f"shared_fields: expected two or more of {texts}, got {settings.shared_fields[0:1]}",
        ),
        (
            is_nli or not (settings.premise_column or settings.hypothesis_column),
            f"premise_column, hypothesis_column: expected field_columns for the fields {texts}",
        ),
        (
            is_nli or settings.labels,
            f"labels: expected those of problems with the fields {texts}, such as yes,no, got none",
        ),
    )


def require(*conditions: tuple[object, str]) -> None:
    """Raise ValueError with the message of the first condition that does not hold."""
    for holds, message in conditions:
        if not holds:
            raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ProblemSettings):
    """Everything that determines a run; the defaults are the settings of recipe `paper-v2`.

    Build one with `Config.from_recipe`, or directly. Validated on creation.
    """

    recipe: str = setting(
        "custom", "Name of the settings' origin, for the manifest.", written_first=True
    )
    ablation: str | None = setting(
        None, "Name of the ablation applied (D13), for the manifest.", written_first=True
    )

    # Suggestions (D3–D5, D12)
    mlms: tuple[str, ...] = _model(
        (), "Hub id, id@revision or folder; may be repeated.", option="--mlm", affects_output=False
    )
    without_mlms: tuple[str, ...] = setting(
        (),
        "Leave out the answers of this masked LM; may be repeated.",
        commands="build",
        panel=INPUT,
        option="--without-mlm",
        omit_if_default=True,
        rare=True,
    )
    """Names as in the provenance columns."""
    suggestions_per_occurrence: int = _model(
        200, "Suggestions of a masked LM for an occurrence.", minimum=1, rare=True
    )
    masking: Literal["single", "joint"] = _model(
        "single", "One occurrence at a time, or all.", rare=True
    )
    ask_all: bool = _model(
        False,
        "Ask about every text, also where too few replacements can come of it.",
        affects_output=False,
        rare=True,
    )
    """By default questions are asked only if the answer can matter: see `phases/suggest.py`."""
    # Filters (D5, D8, D11) and eq. 1
    word_classes: tuple[str, ...] = _filter(
        ("noun", "verb", "adjective"),
        f"Some of {','.join(WORD_CLASSES)}.",
        commands=f"suggest {_BOTH}",
        members=WORD_CLASSES,
        parse=parse_names,
    )
    probability_filter: bool = setting(True, "Condition (i): more probable than the original.")
    class_filter: bool = setting(True, "Condition (iii): the original's word class.")
    tag_match: Literal["coarse", "fine"] = _filter(
        "coarse", "Same word class, or same Penn tag.", rare=True
    )
    combine: Literal["intersection", "union"] = _filter(
        "intersection",
        "Whether a replacement has to be validated in all texts, or in one (eq. 1).",
        rare=True,
    )
    scramble: bool = setting(False, "Shuffle the replacement's letters.")

    # Beyond the paper's limits
    families: Literal["ignore", "reject", "inflect"] = _beyond(
        "ignore",
        "If a text has other forms of a word: leave them, leave out the word, or change them too.",
    )
    repair_articles: bool = _beyond(
        False,
        '"a" becomes "an" where the replacement wants it.',
        option="--repair-articles/--no-repair-articles",
    )

    # Filters by signals
    min_log_odds: float | None = _least(
        "Least log-odds of a replacement against the original, in nats."
    )
    """A replacement's log-odds are the smallest over models and occurrences."""
    min_mlms: int | None = _least(
        "Least number of masked LMs that validated a replacement.", minimum=1
    )
    min_zipf_frequency: float | None = _least(
        "Least frequency of a replacement: log10 of its occurrences in a billion words."
    )
    min_pll_change: float | None = _least(
        "Least change of each text's log-likelihood, in nats; after merge-nli signals.",
        commands="build",
    )
    same_number: bool = _flag("Nouns stay singular or plural.")
    same_tense: bool = _flag("Verbs keep their form.")
    fitting_article: bool = _flag('"a" and "an" stay right.')
    attested_form: bool = _flag("Words have the form that their place asks for.")
    agreeing_number: bool = _flag("Nouns agree with determiner and verb.")
    fitting_determiner: bool = _flag("No quantifiers and the like after determiners.")
    no_compounds: bool = _flag("No parts of compounds and particle verbs.")
    min_quality: float | None = _limit(None, "Least quality of a variant, 0 to 1.", panel=_FILTERS)
    class_quality: Mapping[str, str] = _limit(
        {},
        "Least quality of a class; repeatable.",
        panel=_FILTERS,
        metavar="CLASS=X",
        parse=partial(parse_pairs, form="class=quality"),
        repeated=True,
    )
    judged: tuple[str, ...] = _judged(
        (), "Judgements: a session, or files of annotators or of merge-nli judge; may be repeated."
    )
    min_judged: float | None = _judged(
        None, "Least mean F + R, 2 to 10, of variants in --judged; others go."
    )
    trust_judge: bool = _judged(False, "Filter by a model whose trial has an AUC below 0.7, too.")
    scored_by: Literal["", "mlms", "lm"] = setting(
        "", "Who scores for `quality`: mlms, or lm, which generate asks.", omit_if_default=True
    )
    lm: str | None = _model(
        None, "Causal LM, also .gguf, that scores for quality.", omit_if_default=True
    )
    with_columns: tuple[str, ...] | None = _limit(
        None,
        "An optional column; may be repeated. Default: mean_rank, and with lemminflect quality.",
        option="--with-column",
        members=OPTIONAL,
        rare=True,
    )
    """None becomes the columns that this machine can fill; other machines make these or refuse."""
    common_mlms: bool = _flag(
        "Count only masked LMs that validated a replacement in every text.",
        panel="More columns of the dataset",
    )

    # Eligibility and sampling (D9, D10)
    min_replacements: int = _filter(
        20,
        "A seed needs N replacements or more.",
        commands=f"suggest {_BOTH}",
        minimum=1,
        metavar="N",
    )
    min_replacements_scope: Literal["class", "problem", "word"] = _filter(
        "class",
        "Where replacements are counted: in a class, a problem or a word.",
        option="--scope",
        rare=True,
    )
    subsamples: int = _filter(10, "Draws of variants.", minimum=1, metavar="N")
    variants_per_class: int = _filter(
        20, "Variants drawn of a seed and class.", minimum=1, metavar="N"
    )
    rng_seed: int = _filter(0, "Seed of the random subsamples.", rare=True)

    # Machine, and where things lie
    device: str = setting_of(
        ModelRequest, "device", commands="suggest signals", affects_output=False
    )
    dtype: Literal["float32", "bfloat16", "float16"] = _machine(
        "float32", "float32 is the reference.", commands="suggest signals", rare=True
    )
    batch_tokens: int | None = setting_of(
        ModelRequest, "batch_tokens", commands="suggest signals", affects_output=False, rare=True
    )
    unpadded: bool = setting_of(
        ModelRequest,
        "unpadded",
        commands="suggest signals",
        affects_output=False,
        omit_if_default=True,
        rare=True,
    )
    """Whether masked LMs read texts so; tried when one is opened."""
    workers: int = _machine(
        1,
        "Processes at a time, in build; see --executor.",
        commands="suggest build",
        minimum=1,
        metavar="N",
    )
    tagger: str | None = _machine(
        None, "A spaCy model; by default en_core_web_sm under either of its names."
    )
    store: str | None = _machine(
        None,
        "Suggestion store shared by runs; else in the run folder.",
        commands="suggest",
        rare=True,
    )
    run: str = _machine("runs/default", "Folder of the run.", panel=INPUT)

    def __post_init__(self) -> None:
        """Check every value; raise ValueError or TypeError that names field and remedy."""
        check_settings(self)
        known = ("mean_rank", "quality") if find_spec("lemminflect") else ("mean_rank",)
        columns = known if self.with_columns is None else self.with_columns
        if self.scramble and self.min_quality is None:
            columns = tuple(name for name in columns if name not in OF_WORDS)
        object.__setattr__(self, "with_columns", columns)
        check_problem_settings(self)
        check_members("class_quality", self.class_quality, WORD_CLASSES)
        require(
            (self.word_classes, f"word_classes: expected at least one of {WORD_CLASSES}, got none"),
            (
                0 <= (self.min_quality or 0) <= 1,
                f"min_quality: expected a probability from 0 to 1, got {self.min_quality}",
            ),
            (
                (self.min_judged is None) == (not self.judged),
                "judged, min_judged: expected both or neither, got one of them",
            ),
            (
                self.min_quality is not None or not self.class_quality,
                "class_quality: expected min_quality, for the other classes, with it",
            ),
            (
                all(map(_is_share, self.class_quality.values())),
                "class_quality: expected probabilities from 0 to 1, got "
                f"{', '.join(self.class_quality.values())}",
            ),
            (
                self.lm or self.scored_by != "lm",
                "scored_by: expected a causal LM for lm, got none; name one with --lm",
            ),
            (
                self.class_filter or not (self.same_number or self.same_tense),
                "same_number, same_tense: expected class_filter with them, as without it "
                "replacements are not tagged; set them to false",
            ),
        )

    @classmethod
    def from_recipe(
        cls, recipe: str | Path, *, ablation: str | None = None, **settings: Any
    ) -> Self:
        """Make settings from a recipe, overlaid by an ablation, then by `settings`.

        Args:
            recipe: Name of a bundled recipe, or path of a .toml file with the same keys.
            ablation: Name of one of `recipes/ablations` (D13).
            settings: Single fields; a field that is None keeps the recipe's value.

        Raises:
            ValueError: unknown recipe, ablation or key, or a value out of range.

        >>> Config.from_recipe("poster").min_replacements_scope
        'word'
        """
        path = Path(recipe)
        if path.suffix == ".toml":
            values = parse_toml(read_text(path), str(recipe))
        else:
            values = _read_bundled("recipes", str(recipe))
        return from_mapping(cls, {"recipe": path.stem, **values}).overlaid(ablation, settings)

    def overlaid(self, ablation: str | None, settings: Mapping[str, Any]) -> Self:
        """Overlay these settings by an ablation (D13), and then by single fields.

        With `data` or `dataset`, the recipe's `source` is dropped: other problems need a name.

        Raises:
            ValueError: unknown ablation or key, or a value out of range.
        """
        values = to_mapping(self)
        if settings.get("data") or settings.get("dataset"):
            values["source"] = ""
        if ablation is not None:
            values |= {"ablation": ablation, **_read_bundled("recipes/ablations", ablation)}
        given = {name: value for name, value in settings.items() if value is not None}
        return from_mapping(type(self), values | given)

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Optional columns of the dataset: the requested ones, and ones that limits need."""
        wanted = {
            *(self.with_columns or ()),
            *(column for column, (limit, _) in LIMITS.items() if is_set(getattr(self, limit))),
            *(("common_mlm_count",) if self.common_mlms else ()),
        }
        if "quality" in wanted:
            wanted.add("mean_rank")
        return tuple(name for name in OPTIONAL if name in wanted)

    @property
    def scores(self) -> str:
        """Name of the scores that `scored_by` asks for, which are an output of `signals`."""
        return {"mlms": "neighbours", "lm": "signals"}.get(self.scored_by, "")

    @property
    def changes_more(self) -> bool:
        """Whether variants may change more than the occurrences of one word."""
        return self.families != "ignore" or self.repair_articles


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def is_set(limit: float | None) -> bool:
    """Tell whether a limit on a signal is one: 0 is, None and False are not."""
    return limit is not None and limit is not False


def bundled_path(name: str) -> Path:
    """Return the path of a file or folder shipped with this module: `demo/problems.jsonl`, say."""
    return Path(str(resources.files("generation").joinpath(name)))


def bundled_toml(name: str) -> dict[str, Any]:
    """Read a TOML file shipped beside this module."""
    return parse_toml(bundled_path(name).read_text(encoding="utf-8"), name)


def _read_bundled(folder: str, name: str) -> dict[str, Any]:
    kind = "recipe, without a .toml file" if folder == "recipes" else "ablation"
    check_members(kind, [name], tuple(sorted(p.stem for p in bundled_path(folder).glob("*.toml"))))
    return bundled_toml(f"{folder}/{name}.toml")
