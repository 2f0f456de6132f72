"""Estimates of the cost of a run on a server, and batch files in OpenAI's format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.data_files import read_file
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
) -> dict[Path, int]:
    """Write unanswered requests, all or none, to `path`, `-2`, …; count those of each file."""
    assert isinstance(model, RemoteModel)
    questions = _unanswered(asking, overwrite=overwrite)
    name = re.compile(rf"{re.escape(path.stem)}(-\d+)?{re.escape(path.suffix)}")
    older = [place for place in path.parent.glob("*") if name.fullmatch(place.name)]
    if older and len(questions) and not overwrite:
        first = min(older, key=lambda place: (len(place.name), place.name))
        raise FileExistsError(f"{first}: expected no file, found one; name another, or remove it")
    made = dict[Path, int]()
    with ExitStack() as files:  # moves all files into place when all are written
        size, file, place = 0, None, path
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
                if file is None or size > MOST_BYTES or made[place] == MOST_REQUESTS:
                    if made:
                        place = path.with_name(f"{path.stem}-{len(made) + 1}{path.suffix}")
                    size, made[place] = len(line), 0
                    file = files.enter_context(files.enter_context(atomic(place)).open("wb"))
                file.write(line)
                made[place] += 1
    for leftover in {*older} - made.keys() if made else ():
        leftover.unlink()  # of a longer earlier batch: with it, questions would be asked twice
    return made


def take_results(model: Model, asking: Asking, paths: Sequence[Path]) -> tuple[int, float]:
    """Keep the answers of result files, of several to a request the first.

    Returns their number, and 0 seconds.
    """
    assert isinstance(model, RemoteModel)
    samples, expected = asking.known.samples, asking.fingerprint[:_DIGITS]
    extract = said_in if model.words else alternatives
    results, failed = dict[_Request, Any](), dict[_Request, str]()
    for row in (row for path in paths for row in read_file(path, f"{path}: line ")):
        if row.problem:
            raise row.error
        identity, response = str(row.columns.get("custom_id")), row.columns.get("response")
        numbers = re.fullmatch(rf"{expected}-(\d+)-(\d+)", identity, re.ASCII)
        question, sample = map(int, numbers.groups()) if numbers else (0, samples)
        if question >= len(asking.asked) or sample >= samples:
            raise ValueError(
                f"{row.where}: expected a result of this run, whose custom_id begins with "
                f"{expected}, got {identity[:80]!r}: give model, settings and dataset as with "
                "`batch_out`"
            )
        reason = row.columns.get("error")
        if not isinstance(response, dict):
            response, reason = {}, reason or "no response"
        elif response.get("status_code", 200) != 200:
            reason = reason or f"HTTP {response['status_code']}: {response.get('body')}"
        try:
            extract(response.get("body"))
        except ValueError as error:
            reason = reason or error
        if reason:
            failed[question, sample] = beginning(f"{row.where}: {reason}")
        else:
            results.setdefault((question, sample), response["body"])
    unanswered = _unanswered(asking).tolist()
    taken = [n for n in unanswered if all((n, sample) in results for sample in range(samples))]
    pairs, given = list(asking.pairs.at(asking.asked[taken])), list[Any]()
    for question, pair in zip(taken, pairs, strict=True):
        body = model.body(pair)
        answers = [model.take(body, results[question, sample]) for sample in range(samples)]
        given += [answers] if model.words else answers
    if taken:
        rows = asking.rows_of(model.read([*range(len(taken))], given, pairs), pairs)
        asking.store.keep(asking.keys[taken], rows)
    if missing := len(unanswered) - len(taken):
        reasons = [reason for request, reason in failed.items() if request not in results]
        raise ValueError(
            f"expected answers to {len(asking.asked):,} questions, {missing:,} are missing: "
            f"{len(reasons):,} requests failed{f', such as {reasons[0]!r}' if reasons else ''}; "
            "what was answered is kept: give further results with `batch_in`, write requests for "
            "the rest with `batch_out`, or ask the server without either"
        )
    return len(taken), 0.0


# --- Costs ---


def estimate(
    opened: Iterable[tuple[Model, Asking]],
    *,
    prices: tuple[float, float] | None = None,
    tokenizer: Path | None = None,
) -> dict[str, Any]:
    """Estimate the rest of a run: requests, tokens and, if prices are given, the cost."""
    reader = None
    if tokenizer is not None:
        from tokenizers import Tokenizer

        reader = Tokenizer.from_file(str(tokenizer))
    requests = prompt_tokens = answer_tokens = 0
    for _, asking in opened:
        known, prompt = asking.known, asking.known.prompt
        if prompt is None or known.answer_tokens is None:
            raise ValueError(
                "dry_run: expected a language model, which is asked by prompts, and a limit of an "
                "answer's tokens, such as `server_settings` max_completion_tokens=N"
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


def costs_text(costs: Mapping[str, Any]) -> str:
    """Describe the result of `estimate` in words."""
    others = "; other languages and tokenizers differ" * ("characters" in costs["counted_by"])
    lines = [
        f"{costs['requests']:,} requests",
        f"about {costs['prompt_tokens']:,} tokens of prompts ({costs['counted_by']}{others})",
        f"at most {costs['most_answer_tokens']:,} tokens of answers, thinking included",
    ]
    if "most_cost" in costs:
        lines.append(f"cost: at most {costs['most_cost']:,.2f}")
    return "\n".join(lines)
