"""Estimates of the cost of a run on a server, and batch files in OpenAI's format."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.files import atomic
from merge_metric.models.remote import RemoteModel, alternatives, beginning, said_in
from merge_metric.predict.driver import Asking

if TYPE_CHECKING:
    from merge_metric.models.pair_model import Model

MOST_REQUESTS: Final = 50_000
MOST_BYTES: Final = 190_000_000
"""Most bytes in a batch file; OpenAI accepts 200 MB."""

_DIGITS: Final = 16
_CHARACTERS: Final = 4
"""Approximate number of characters per token of English."""

_Request = tuple[int, int]
"""Number of a question, and of a sample of its answers."""


def _unanswered(asking: Asking, *, overwrite: bool = True) -> NDArray[np.int64]:
    """Number the questions that were not answered yet; none if the file is finished."""
    if asking.finished(overwrite=overwrite):
        return np.empty(0, np.int64)
    return np.flatnonzero(asking.store.missing(asking.keys))


# --- Batches ---


def write_requests(
    model: Model, asking: Asking, path: Path, *, overwrite: bool = False
) -> list[tuple[Path, int]]:
    """Write unanswered requests, all or none, to `path`, `-2`, …; return files with counts."""
    assert isinstance(model, RemoteModel)
    questions = _unanswered(asking, overwrite=overwrite)
    name = re.compile(rf"{re.escape(path.stem)}(-\d+)?{re.escape(path.suffix)}")
    older = [place for place in path.parent.glob("*") if name.fullmatch(place.name)]
    if older and len(questions) and not overwrite:
        first = min(older, key=lambda place: (len(place.name), place.name))
        raise FileExistsError(f"{first}: expected no file, found one; name another, or remove it")
    made: list[tuple[Path, int]] = []
    with ExitStack() as files:  # moves all files into place when all are written
        size, file = 0, None
        pairs = asking.pairs.at(asking.asked[questions])
        for question, pair in zip(questions.tolist(), pairs, strict=True):
            body = model.body(pair)
            for sample in range(asking.known.samples):
                request = {
                    "custom_id": f"{asking.fingerprint[:_DIGITS]}-{question}-{sample}",
                    "method": "POST",
                    "url": f"/v1/{model.path}",
                    "body": body,
                }
                line = (json.dumps(request, ensure_ascii=False) + "\n").encode()
                size += len(line)
                if file is None or size > MOST_BYTES or made[-1][1] == MOST_REQUESTS:
                    number, size = len(made) + 1, len(line)
                    numbered = path.with_name(f"{path.stem}-{number}{path.suffix}")
                    place = path if number == 1 else numbered
                    file = files.enter_context(files.enter_context(atomic(place)).open("wb"))
                    made.append((place, 0))
                file.write(line)
                made[-1] = made[-1][0], made[-1][1] + 1
    for leftover in {*older} - {place for place, _ in made} if made else ():
        leftover.unlink()  # of a longer earlier batch: with it, questions would be asked twice
    return made


def take_results(model: Model, asking: Asking, paths: Sequence[Path]) -> tuple[int, float]:
    """Keep the answers of result files; return their number, and 0 seconds."""
    assert isinstance(model, RemoteModel)
    samples = asking.known.samples
    extract = said_in if model.words else alternatives
    results = dict[_Request, tuple[Any, str]]()
    """Request → answer, and its place."""
    failed = dict[_Request, str]()
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: expected a file of results, found no file there")
        for number, line in _lines(path):
            where = f"{path}: line {number}"
            request, answer, reason = _read_result(line, asking, where)
            try:
                content = None if reason else extract(answer)
            except ValueError as error:
                reason = f"{where}: {error}"
            if reason:
                failed[request] = reason
                continue
            earlier, earlier_place = results.setdefault(request, (answer, where))
            if extract(earlier) != content:
                raise ValueError(
                    f"{where}: expected one answer to each request, got another answer to "
                    f"{json.loads(line)['custom_id']} than in {earlier_place}: leave out the line "
                    "that does not count"
                )
    failed = {request: reason for request, reason in failed.items() if request not in results}
    unanswered = _unanswered(asking).tolist()
    taken = [n for n in unanswered if all((n, sample) in results for sample in range(samples))]
    pairs, given = list(asking.pairs.at(asking.asked[taken])), list[Any]()
    for question, pair in zip(taken, pairs, strict=True):
        body = model.body(pair)
        for sample in range(samples):
            answer, where = results[question, sample]
            try:
                given.append(model.take(body, answer))
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
    if taken:
        if model.words:
            given = [given[n : n + samples] for n in range(0, len(given), samples)]
        rows = asking.rows_of(model.read([*range(len(taken))], given, pairs), pairs)
        asking.store.keep(asking.keys[taken], rows)
    if missing := len(unanswered) - len(taken):
        reasons = f", such as {next(iter(failed.values()))[:300]!r}" if failed else ""
        raise ValueError(
            f"expected answers to {len(asking.asked):,} questions, {missing:,} are missing: "
            f"{len(failed):,} requests failed{reasons}; what was answered is kept: give further "
            "results with `batch_in`, write requests for the rest with `batch_out`, or ask the "
            "server without either"
        )
    return len(taken), 0.0


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number the lines of a text file, plain or gzip, that are not empty."""
    with path.open("rb") as raw:
        read = gzip.open if raw.read(2) == b"\x1f\x8b" else open
    try:
        with read(path, "rt", encoding="utf-8-sig") as file:
            yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())
    except (EOFError, UnicodeDecodeError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path}: expected JSON lines in UTF-8, plain or gzip, could not read them: {error}"
        ) from error


def _read_result(line: str, asking: Asking, where: str) -> tuple[_Request, Any, str]:
    """Return whose result a line is, and the answer, or why there is none."""
    try:
        result = json.loads(line)
        if not isinstance(result, dict):
            raise TypeError(result)
    except (ValueError, TypeError, RecursionError):
        raise ValueError(
            f"{where}: expected a JSON object with custom_id, got {line[:100]!r}"
        ) from None
    expected, identity = asking.fingerprint[:_DIGITS], str(result.get("custom_id"))
    numbers = re.fullmatch(rf"{expected}-(\d+)-(\d+)", identity, re.ASCII)
    question, sample = map(int, numbers.groups()) if numbers else (0, asking.known.samples)
    if question >= len(asking.asked) or sample >= asking.known.samples:
        raise ValueError(
            f"{where}: expected a result of this run, whose custom_id begins with {expected}, "
            f"got {identity[:80]!r}: give model, settings and dataset as with `batch_out`"
        )
    response, reason = result.get("response"), result.get("error")
    if not isinstance(response, dict):
        response, reason = {}, reason or "no response"
    elif response.get("status_code", 200) != 200:
        reason = reason or f"HTTP {response['status_code']}: {response.get('body')}"
    return (question, sample), response.get("body"), beginning(reason) if reason else ""


# --- Costs ---


def read_prices(text: str | None) -> tuple[float, float] | None:
    """Read prices per million tokens of prompts and of answers, such as "0.15,0.6"."""
    if text is None:
        return None
    try:
        price_in, price_out = map(float, text.split(","))
        if not (0 <= price_in < math.inf and 0 <= price_out < math.inf):
            raise ValueError(text)
    except ValueError:
        raise ValueError(
            f"--prices: expected two numbers, of a million tokens of prompts and of answers, such "
            f"as 0.15,0.6, got {text!r}"
        ) from None
    return price_in, price_out


def plan(
    files: Iterable[Asking],
    *,
    prices: tuple[float, float] | None = None,
    tokenizer: Path | None = None,
) -> dict[str, Any]:
    """Estimate the rest of a run: requests, tokens and, if prices are given, the cost."""
    reader = None
    if tokenizer is not None:
        from tokenizers import Tokenizer

        place = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
        if not place.is_file():
            raise FileNotFoundError(f"{place}: expected a tokenizer.json, found no file there")
        reader = Tokenizer.from_file(str(place))
    requests = prompt_tokens = answer_tokens = 0
    for asking in files:
        known, prompt = asking.known, asking.known.prompt
        if prompt is None:
            raise ValueError("dry_run: expected a language model, which is asked by prompts")
        if known.answer_tokens is None:
            raise ValueError(
                "dry_run: expected a limit of an answer's tokens, by which they are counted, got "
                "none: give `server_setting` max_completion_tokens=N"
            )
        pairs = asking.pairs.at(asking.asked[_unanswered(asking)])
        requests += len(pairs) * known.samples
        answer_tokens += len(pairs) * known.samples * known.answer_tokens
        for pair in pairs:
            texts = [prompt.text(*pair)]
            if known.chat:
                texts = [message["content"] for message in prompt.messages(*pair)]
            tokens = -(-sum(map(len, texts)) // _CHARACTERS)
            if reader is not None:
                tokens = sum(len(reader.encode(text).ids) for text in texts)
            prompt_tokens += tokens * known.samples
    costs: dict[str, Any] = {
        "requests": requests,
        "prompt_tokens": prompt_tokens,
        "counted_by": str(tokenizer) if tokenizer else f"{_CHARACTERS} characters a token",
        "most_answer_tokens": answer_tokens,
    }
    if prices:
        costs["most_cost"] = (prices[0] * prompt_tokens + prices[1] * answer_tokens) / 1e6
    return costs


def plan_text(costs: Mapping[str, Any]) -> str:
    """Describe the result of `plan` in words."""
    others = "; other languages and tokenizers differ" * ("characters" in costs["counted_by"])
    lines = [
        f"{costs['requests']:,} requests",
        f"about {costs['prompt_tokens']:,} tokens of prompts ({costs['counted_by']}{others})",
        f"at most {costs['most_answer_tokens']:,} tokens of answers, thinking included",
    ]
    if "most_cost" in costs:
        lines.append(f"cost: at most {costs['most_cost']:,.2f}")
    return "\n".join(lines)
