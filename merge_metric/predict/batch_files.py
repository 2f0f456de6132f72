"""Estimates of the cost of a run on a server, and batch files in OpenAI's format."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.files import atomic
from merge_metric.models.remote import RemoteModel, alternatives, beginning, said_in
from merge_metric.predict.driver import Asking
from merge_metric.predict.kept_answers import to_rows

if TYPE_CHECKING:
    from merge_metric.models.pair_model import Model

MOST_REQUESTS: Final = 50_000
MOST_BYTES: Final = 190_000_000
"""Most bytes in a batch file; OpenAI accepts 200 MB."""

_DIGITS: Final = 16
_CHARACTERS: Final = 4
"""Approximate number of characters per token of English."""


def require_server(model: Model, what: str) -> RemoteModel:
    """Return the model if it is on a server; raise ValueError otherwise."""
    if not isinstance(model, RemoteModel):
        raise ValueError(f"{what}: expected a model on a server, with `base_url`")
    return model


def write_requests(
    model: Model, asking: Asking, path: Path, *, overwrite: bool = False
) -> list[tuple[Path, int]]:
    """Write unanswered requests, all or none, to `path`, `-2`, …; return files with counts."""
    server, samples = require_server(model, "batch_out"), asking.known.samples
    asking.require_replaceable(overwrite=overwrite)
    pairs = asking.pairs.at(asking.asked)
    made: list[tuple[Path, int]] = []
    with ExitStack() as files:  # moves all files into place when all are written
        size, file = 0, None
        for position in np.flatnonzero(_unanswered(asking)).tolist():
            body = server.body(pairs[position])
            for sample in range(samples):
                request = {
                    "custom_id": f"{asking.fingerprint[:_DIGITS]}-{position}-{sample}",
                    "method": "POST",
                    "url": f"/v1/{server.path}",
                    "body": body,
                }
                line = (json.dumps(request, ensure_ascii=False) + "\n").encode()
                size += len(line)
                if file is None or size > MOST_BYTES or made[-1][1] == MOST_REQUESTS:
                    place, size = _numbered(path, len(made) + 1), len(line)
                    _require_free(place, overwrite)
                    file = files.enter_context(files.enter_context(atomic(place)).open("wb"))
                    made.append((place, 0))
                file.write(line)
                made[-1] = place, made[-1][1] + 1
        numbers = count(len(made) + 1) if made else ()
        older = [*takewhile(Path.exists, (_numbered(path, number) for number in numbers))]
        for leftover in older:
            _require_free(leftover, overwrite)
    for leftover in older:
        leftover.unlink()  # of a longer earlier batch: with it, questions would be asked twice
    return made


def _require_free(place: Path, overwrite: bool) -> None:
    if not overwrite and place.exists():
        raise FileExistsError(f"{place}: expected no file, found one; name another, or remove it")


def _numbered(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def take_results(model: Model, asking: Asking, paths: Sequence[Path]) -> tuple[int, float]:
    """Keep the answers of result files; return their number, and 0 seconds."""
    server, samples = require_server(model, "batch_in"), asking.known.samples
    pairs, unanswered = asking.pairs.at(asking.asked), _unanswered(asking)
    taken = dict[int, Any]()
    waiting: dict[int, dict[int, Any]] = {}
    failed: dict[tuple[int, int], str] = {}
    first: dict[tuple[int, int], tuple[str, int]] = {}
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: expected a file of results, found no file there")
        for number, line in _lines(path):
            if not line.strip():
                continue
            where = f"{path}: line {number}"
            position, sample, answer, reason = _read_result(line, asking, samples, where)
            try:
                if not reason:
                    content = (said_in if server.words else alternatives)(answer)
                    read = where, hash(repr(content))
                    earlier, known = first.setdefault((position, sample), read)
            except ValueError as error:
                reason = f"{where}: {error}"
            if reason:
                failed[position, sample] = reason
                continue
            if known != read[1]:
                identity = json.loads(line)["custom_id"]
                raise ValueError(
                    f"{where}: expected one answer to each request, got another answer to "
                    f"{identity} than in {earlier}: leave out the line that does not count"
                )
            failed.pop((position, sample), None)
            if not unanswered[position]:
                continue
            waiting.setdefault(position, {})[sample] = answer
            if len(waiting[position]) == samples:
                # Only now, so that each answer is counted once in requests and tokens.
                body, of_question = server.body(pairs[position]), waiting.pop(position)
                try:
                    given = [server.take(body, of_question[n]) for n in range(samples)]
                except ValueError as error:
                    raise ValueError(f"{where}: {error}") from None
                taken[position] = given if server.words else given[0]
                unanswered[position] = False
    if taken:
        asked = [pairs[position] for position in taken]
        answers = server.read([*taken], [*taken.values()], asked)
        asking.check(answers, asked)
        asking.store.keep(asking.keys[[*taken]], to_rows(answers))
    if missing := int(unanswered.sum()):
        reasons = f", such as {next(iter(failed.values()))[:300]!r}" if failed else ""
        raise ValueError(
            f"expected answers to {len(asking.asked):,} questions, {missing:,} are missing: "
            f"{len(failed):,} requests failed{reasons}; what was answered is kept: give further "
            "results with `batch_in`, write requests for the rest with `batch_out`, or ask the "
            "server without either"
        )
    return len(taken), 0.0


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number the lines of a text file, plain or gzip, with or without a byte order mark."""
    with path.open("rb") as raw:
        read = gzip.open if raw.read(2) == b"\x1f\x8b" else open
    try:
        with read(path, "rt", encoding="utf-8-sig") as file:
            yield from enumerate(file, start=1)
    except (EOFError, UnicodeDecodeError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path}: expected JSON lines in UTF-8, plain or gzip, could not read them: {error}"
        ) from error


def _unanswered(asking: Asking) -> NDArray[np.bool_]:
    if asking.finished():
        return np.zeros(len(asking.asked), bool)
    return asking.store.missing(asking.keys)


def _read_result(line: str, asking: Asking, samples: int, where: str) -> tuple[int, int, Any, str]:
    try:
        result = json.loads(line)
        if not isinstance(result, dict):
            raise TypeError(result)
    except (ValueError, TypeError, RecursionError):
        raise ValueError(
            f"{where}: expected a JSON object with custom_id, got {line[:100]!r}"
        ) from None
    expected, identity = asking.fingerprint[:_DIGITS], str(result.get("custom_id"))
    name, *numbers = identity.split("-", 2)
    position, sample = len(asking.asked), samples
    if name == expected and len(numbers) == 2 and all(map(str.isdecimal, numbers)):
        position, sample = map(int, numbers)
    if position >= len(asking.asked) or sample >= samples:
        raise ValueError(
            f"{where}: expected a result of this run, whose custom_id begins with {expected}, "
            f"got {identity[:80]!r}: give model, settings and dataset as with `batch_out`"
        )
    response, error = result.get("response"), result.get("error")
    if error or not isinstance(response, dict):
        return position, sample, None, beginning(error or "no response")
    if response.get("status_code", 200) != 200:
        reason = beginning(f"HTTP {response['status_code']}: {response.get('body')}")
        return position, sample, None, reason
    return position, sample, response.get("body"), ""


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
    asking: Asking,
    *,
    prices: tuple[float, float] | None = None,
    tokenizer: Path | None = None,
) -> dict[str, Any]:
    """Estimate the rest of a run: requests, tokens and, if prices are given, the cost."""
    known, prompt = asking.known, asking.known.prompt
    asked = asking.pairs.at(asking.asked[_unanswered(asking)])
    if prompt is None:
        raise ValueError("dry_run: expected a language model, which is asked by prompts")
    if known.answer_tokens is None:
        raise ValueError(
            "dry_run: expected a limit of an answer's tokens, by which they are counted, got "
            "none: give `server_setting` max_completion_tokens=N"
        )
    tokens = 0
    if tokenizer is not None:
        from tokenizers import Tokenizer

        place = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
        if not place.is_file():
            raise FileNotFoundError(f"{place}: expected a tokenizer.json, found no file there")
        reader = Tokenizer.from_file(str(place))
    for pair in asked:
        texts = [prompt.text(*pair)]
        if known.chat:
            texts = [message["content"] for message in prompt.messages(*pair)]
        if tokenizer is None:
            tokens += -(-sum(map(len, texts)) // _CHARACTERS)
        else:
            tokens += sum(len(reader.encode(text).ids) for text in texts)
    requests = len(asked) * known.samples
    costs: dict[str, Any] = {
        "requests": requests,
        "prompt_tokens": tokens * known.samples,
        "counted_by": str(tokenizer) if tokenizer else f"{_CHARACTERS} characters a token",
        "most_answer_tokens": requests * known.answer_tokens,
    }
    if prices:
        parts = zip(prices, (costs["prompt_tokens"], costs["most_answer_tokens"]), strict=True)
        costs["most_cost"] = sum(price * count for price, count in parts) / 1e6
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
