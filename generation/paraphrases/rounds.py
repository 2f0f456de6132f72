"""Rounds of rewriting: requests, paraphrases found in answers, and fates of candidates."""

import hashlib
import shlex
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from generation.paraphrases.config import ParaphraseConfig
from generation.records import Seed, replacement_schema, variant_rows
from generation.run_folder import RunFolder
from generation.run_summary import funnel_text, source_line
from generation.variants.reasons import KEPT, RejectionReason, funnel_columns
from merge_dataset.answer_store import slug
from merge_dataset.files import read_json, to_json
from merge_dataset.schema import LABELS, PARAPHRASE
from merge_metric.models.pair_model import Description, Pair


class ParaphraseReason(RejectionReason):
    """Reasons to drop candidates, or problems without paraphrases; the first that holds counts."""

    # fmt: off
    ANSWERED_WRONG = "answered_wrong", "problems", "the NLI model answers the problem wrong"
    NO_PARAPHRASE = "no_paraphrase", "problems", "no candidate of the hypothesis is kept"

    EMPTY = "empty", "screening", "nothing is left of it when it is normalised"
    UNFINISHED = "unfinished", "screening", "cut at the most new tokens"
    TOO_LONG = "too_long", "screening", "more than ten characters for each of the most new tokens"
    PROMPT_ECHOED = ("prompt_echoed", "screening",
        "has four words in a row of the instruction that the hypothesis lacks")
    COPY = "copy", "screening", "the hypothesis itself, but for case, punctuation and spaces"
    QUOTED = ("quoted", "screening",
        "the hypothesis as it stands with more around it, which rewrites nothing")
    DUPLICATE = ("duplicate", "screening",
        "an earlier candidate of the hypothesis, whatever became of that")

    NOT_ENTAILED = "not_entailed", "entailment", "not entailed by the hypothesis (eq. 1)"
    NOT_ENTAILING = "not_entailing", "entailment", "does not entail the hypothesis (eq. 1)"

    SURPLUS = "surplus", "selection", "a paraphrase beyond the k that are kept"
    # fmt: on


REASONS: Final = ParaphraseReason.of_steps("screening", "entailment", "selection")

FUNNEL_COLUMNS: Final = funnel_columns(
    REASONS,
    {"generated": "all candidates of the generator", KEPT: "paraphrases, which are the variants"},
)
"""Column of a funnel of candidates → what it counts."""


class ParaphraseRequest(NamedTuple):
    """A hypothesis to be paraphrased."""

    hypothesis: str
    temperature: float
    """Divisor of the logits; above 0."""
    earlier: tuple[str, ...] = ()
    """Candidates of earlier rounds (`Candidate.text`), which count as groups before the first."""


class Candidate(NamedTuple):
    """One output for a request."""

    text: str
    """Decoded text without special tokens; `clean` finds the paraphrase in it."""
    finished: bool
    """False if the maximum of new tokens was reached before an end."""
    score: float
    """Log-probability at the request's temperature, without penalties, in nats per token."""


class TextGenerator(Protocol):
    """A model that rewrites hypotheses."""

    device: str
    """Type of the device; on "cpu", several threads ask for candidates."""
    batch_size: int
    """Number of requests per batch that suits the device."""

    def describe(self) -> Description:
        """Describe what determines its candidates with prompt and decoding, and its `weights`."""

    def length(self, hypothesis: str) -> int:
        """Count the tokens of a hypothesis's prompt; a batch has prompts of similar lengths."""

    def candidates(self, requests: Sequence[ParaphraseRequest]) -> list[list[Candidate]]:
        """Find the candidates for each request of a batch; equal batches have equal candidates."""


def clean(text: str, hypothesis: str) -> str:
    r"""Find the paraphrase in a generator's answer; "" if there is none.

    It is the first line that is not empty and does not announce the answer, without the quotation
    marks around it.

    >>> clean('Here is another way to say it:\n\n"A girl leaps."\nOr not.', "A girl jumps.")
    'A girl leaps.'
    >>> clean('"So," she said.', "She said so.")
    '"So," she said.'
    """
    hypothesis = hypothesis.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].endswith(":") and not hypothesis.endswith(":"):
        lines = lines[1:]
    line = lines[0] if lines else ""
    while _quoted(line) and not _quoted(hypothesis):
        line = line[1:-1].strip()
    return line


def _quoted(line: str) -> bool:
    """Tell whether one pair of quotation marks encloses the line, with none of them inside.

    >>> [_quoted(line) for line in ('"A girl."', '"A" and "B"', "'A girl doesn't.'", '"')]
    [True, False, True, False]
    """
    inner = line[1:-1]
    # A mark between letters is an apostrophe.
    letters = [False, *(c.isalpha() for c in inner), False]
    marks = {c for i, c in enumerate(inner) if not (letters[i] and letters[i + 2])}
    is_enclosed = len(line) > 1 and line[0] + line[-1] in ('""', "''", "“”", "‘’", "«»", "``")
    return is_enclosed and not marks & {line[0], line[-1]}


def normalise(text: str) -> str:
    """Normalise a text to find duplicates: no case, punctuation, or width of spaces.

    >>> normalise("  A girl—smiling—JUMPS! "), normalise("¿…?")
    ('a girl smiling jumps', '')
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # A space in place of punctuation, separators and control characters.
    spaced = (" " if unicodedata.category(c)[0] in "PZC" else c for c in folded)
    return " ".join("".join(spaced).split())


def temperature_of(hypothesis: str, number: int, config: ParaphraseConfig) -> float:
    """Draw a temperature, determined by `rng_seed`, hypothesis and round."""
    key = f"{config.rng_seed}\0{number}\0{hypothesis}"
    draw = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) / 2**64
    low, high = config.temperature_min, config.temperature_max
    return min(low + draw * (high - low), high)


def echoes(text: str, hypothesis: str, prompt: str) -> bool:
    """Tell whether a text has four consecutive words of the instruction, not of the hypothesis.

    >>> prompt = "Rephrase the following sentence: {hypothesis}"
    >>> echoes("Rephrase the following sentence: A girl.", "A girl.", prompt)
    True
    >>> echoes("Rephrase the following: A girl.", "A girl.", prompt)
    False
    """
    parts = [normalise(part).split() for part in prompt.split("{hypothesis}")]
    length = min(4, max(map(len, parts)))

    def runs(words: Sequence[str]) -> set[tuple[str, ...]]:
        return set(zip(*(words[i:] for i in range(length)), strict=False))

    instruction = set[tuple[str, ...]]().union(*map(runs, parts))
    return bool(instruction & runs(normalise(text).split()) - runs(normalise(hypothesis).split()))


def run_rounds(
    hypotheses: Sequence[str],
    config: ParaphraseConfig,
    *,
    rewrite: Callable[[int, list[ParaphraseRequest]], list[list[Candidate]]],
    judge: Callable[[int, list[Pair]], NDArray[np.float64]],
) -> Iterator[list[dict[str, Any]]]:
    """Rewrite hypotheses until k paraphrases of each are kept; yield `PARAPHRASES` of each round.

    `rewrite` returns candidates for a round's requests, `judge` probabilities, (n, 3), for pairs.
    """
    kept = Counter[Any]()
    earlier: dict[str, tuple[str, ...]] = dict.fromkeys(hypotheses, ())
    forms: dict[str, set[str]] = {hypothesis: set() for hypothesis in hypotheses}
    for number in range(1, config.max_rounds + 1):
        requests = [
            ParaphraseRequest(h, temperature_of(h, number, config), earlier[h])
            for h in earlier
            if kept[h] < config.k
        ]
        if not requests:
            return
        rows: list[dict[str, Any]] = []
        for request, candidates in zip(requests, rewrite(number, requests), strict=True):
            hypothesis, copy = request.hypothesis, normalise(request.hypothesis)
            earlier[hypothesis] += tuple(candidate.text for candidate in candidates)
            for rank, candidate in enumerate(candidates):
                text = clean(candidate.text, hypothesis)
                form = normalise(text)
                tests = {
                    ParaphraseReason.EMPTY: not form,
                    ParaphraseReason.UNFINISHED: not candidate.finished,
                    # A token seldom has ten characters.
                    ParaphraseReason.TOO_LONG: len(text) > 10 * config.max_new_tokens,
                    ParaphraseReason.PROMPT_ECHOED: echoes(text, hypothesis, config.prompt),
                    ParaphraseReason.COPY: form == copy,
                    ParaphraseReason.QUOTED: f" {copy} " in f" {form} ",
                    ParaphraseReason.DUPLICATE: form in forms[hypothesis],
                }
                forms[hypothesis].add(form)
                row = {"hypothesis": hypothesis, "round": number, "rank": rank, "text": text}
                row |= {"raw_text": candidate.text, "temperature": request.temperature}
                reason = next((reason for reason, holds in tests.items() if holds), None)
                rows.append({**row, "score": candidate.score, "reason": reason})
        new = [row for row in rows if row["reason"] is None]
        pairs = [(row["hypothesis"], row["text"]) for row in new]
        answers = judge(number, [*pairs, *((text, hypothesis) for hypothesis, text in pairs)])
        # At a tie the first label counts.
        entailed, entailing = np.split(answers.argmax(axis=1) == LABELS.index("entailment"), 2)
        for i, row in enumerate(new):
            row["entailed"], row["entailing"] = (float(answers[i + j, 0]) for j in (0, len(new)))
            tests = {
                ParaphraseReason.NOT_ENTAILED: not entailed[i],
                ParaphraseReason.NOT_ENTAILING: not entailing[i],
                ParaphraseReason.SURPLUS: kept[row["hypothesis"]] == config.k,
            }
            row["reason"] = next((reason for reason, holds in tests.items() if holds), KEPT)
            kept[row["hypothesis"]] += row["reason"] == KEPT
        yield rows


PARAPHRASES = pa.schema(
    [
        *((name, pa.string()) for name in ("hypothesis", "text", "raw_text")),
        *((name, pa.int32()) for name in ("round", "rank")),
        *((name, pa.float64()) for name in ("temperature", "score", "entailed", "entailing")),
        ("reason", pa.string()),
    ]
)
"""Candidates: `text` is what `clean` made of the generator's `raw_text`; `round` is from 1, `rank`
among the candidates of a request from 0; probabilities that the hypothesis entails it (`entailed`)
and the other way round (`entailing`), if the NLI model was asked; `reason` is one of `REASONS`, or
`KEPT`."""


def variants_of(seeds: Sequence[Seed], texts: Mapping[str, Sequence[str]]) -> pa.Table:
    """Make the split `variants` of seeds from the paraphrases of their hypotheses."""
    rows, edits = [], []
    common = {"word_class": PARAPHRASE, "premise_mlms": [], "hypothesis_mlms": []}
    for seed in seeds:
        for text in texts[seed.hypothesis]:
            named = {"seed_id": seed.seed_id, "word": seed.hypothesis, "replacement": text}
            rows.append({**named, **common, "subsamples": [0]})
            edits.append([([], ""), ([(0, len(seed.hypothesis))], text)])
    schema = replacement_schema().append(pa.field("subsamples", pa.list_(pa.int32())))
    table = pa.Table.from_pylist(rows, schema)
    return variant_rows(table, {seed.seed_id: seed for seed in seeds}, edits)


def render_funnel(rows: Iterable[Mapping[str, int]]) -> str:
    """Render the funnel as text: rounds as columns, reasons and kept candidates as lines."""
    rows = list(rows)
    headings, ends = [f"round {row['round']}" for row in rows], (*REASONS, KEPT)
    return funnel_text("candidates", rows, headings, ("generated", *ends), ends, width=18)


def summarise(
    run: Path,
    out: Path,
    configs: Sequence[str],
    *,
    model: Mapping[str, str | None],
    as_json: bool = False,
) -> str:
    """Summarise a run: funnel, eligible seeds, paraphrases, and the next commands."""
    manifest = read_json(RunFolder(run).manifest)
    problems, seeds = manifest["problems"], manifest["eligible"][PARAPHRASE]
    predictions = f"predictions/{'_'.join(configs)}_{slug(manifest['nli_model']['name'])}.parquet"
    named = [word for name, value in model.items() if value for word in (f"--{name}", value)]
    where = ["--dataset", str(out), *(word for name in configs for word in ("--config", name))]
    following = [
        shlex.join(["merge-nli", "predict", *named, *where, "--out", predictions]),
        shlex.join(["merge-nli", "score", predictions, *where]),
    ]
    if as_json:
        keys = ("source", "fingerprint", "generator", "nli_model", "problems", "hypotheses",
                "funnel", "eligible", "variants")  # fmt: skip
        made = {key: manifest[key] for key in keys}
        made |= {"run": str(run), "out": str(out), "configs": configs, "next": following}
        return to_json(made)
    variants, next_lines = manifest["variants"], "\n    ".join(following)
    return f"""{source_line(manifest)}
{manifest["nli_model"]["name"]} answers {problems["answered_right"]:,} of them right, with \
{manifest["hypotheses"]:,} different hypotheses

{render_funnel(manifest["funnel"])}
Eligible seeds:   {seeds:,}
Paraphrases:      {variants:,}, {variants / seeds:.1f} per seed

Run folder:       {run}  (settings, every candidate, exclusions, manifest)
Dataset folder:   {out}  (configuration {", ".join(configs)})

Next:
    {next_lines}"""
