"""Language models behind an OpenAI-compatible server: a prompt per request, several at a time."""

from __future__ import annotations

import logging
import math
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from merge_dataset.redaction import mask_known, mask_secrets, mask_urls, secrets_in, spellings
from merge_metric.models.answer_words import letter_probabilities
from merge_metric.models.language_model import Words, Written, asked_by, of_labels
from merge_metric.models.pair_model import Answers, Description, ModelRequest, Pair
from merge_metric.models.templates import Prompt

if TYPE_CHECKING:
    import httpx

_MAY_PASS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses of temporary errors, after which a request is repeated."""
_HINTS: Final = {
    400: ": the prompt may be too long, or the server may not know one of the settings",
    401: ": name the environment variable that holds the key with `api_key_env`",
    403: ": name the environment variable that holds the key with `api_key_env`",
    404: ": check the base URL, which mostly ends in /v1, and the model's name",
}
_LONGEST_WAIT: Final = 60.0
_SHOWN: Final = 300
_ALIKE: Final = 5
"""Number of different prompt lengths with the same, largest token count that shows cutting."""

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

log = logging.getLogger(__name__)


class Endpoint:
    """Requests to a place on a server, several at a time and repeated if need be.

    No message has the key or another secret of the URL.
    """

    def __init__(
        self,
        request: ModelRequest,
        path: str,
        *,
        api_key: str = "",
        timeout: float = 120.0,
        retries: int = 6,
        backoff: float = 1.0,
    ) -> None:
        """Prepare to ask at a path below the server's URL; ValueError if it, or the key, is none.

        `timeout` is in seconds without a byte. What failed for what may pass is asked again
        `retries` times, first after `backoff` seconds, then twice as many each time, up to a
        minute; the server's `Retry-After` takes precedence.
        """
        import httpx

        key, source, url = api_key, "`api_key`", httpx.URL()
        if request.api_key_env:
            source = f"the environment variable {request.api_key_env}"
            key = os.environ.get(request.api_key_env, "").strip()
        odd = next((n for n, c in enumerate(key) if not "!" <= c <= "~"), None)
        if odd is not None or (request.api_key_env and not key):
            got = "none" if odd is None else f"one whose character {odd + 1} of {len(key)} is none"
            raise ValueError(
                f"expected an API key of ASCII letters, digits and signs in {source}, got {got}"
            )
        with suppress(httpx.InvalidURL):
            url = httpx.URL(request.base_url or "")
        if url.scheme not in {"http", "https"} or not url.host:
            got = re.sub(r"^.*@", "***@", mask_urls(request.base_url or ""))
            raise ValueError(f"expected a URL like http://localhost:8000/v1, got {got!r}")
        self._url = url = url.copy_with(path=f"{url.path.rstrip('/')}/{path}")
        self.place = mask_urls(str(url.copy_with(username=None, password=None, query=None)))
        given = [key, url.username, url.password, *url.params.values(), *secrets_in(url.path)]
        secrets = spellings(filter(None, given))
        limits = httpx.Limits(max_connections=request.concurrency)
        headers = {"Authorization": f"Bearer {key}"} if key else {}

        def mask(value: Any) -> Any:
            """Mask our secrets in all texts of a JSON value."""
            if isinstance(value, list):
                return [mask(item) for item in value]
            if isinstance(value, dict):
                return {mask(k): mask(v) for k, v in value.items()}
            return mask_known(value, secrets) if isinstance(value, str) else value

        # What these two hold is not shown with the model.
        self._client: Callable[[], httpx.Client] = lambda: httpx.Client(
            headers=headers, timeout=timeout, limits=limits
        )
        self._mask = mask
        self._retries, self._backoff, self._stopped = retries, backoff, threading.Event()
        self._concurrency, self._left = request.concurrency, request.max_requests or math.inf
        self._lock = threading.Lock()

    def answers(
        self, questions: Iterable[Asked], ask: Callable[[httpx.Client, Asked], Answered]
    ) -> Iterator[dict[int, Answered]]:
        """Ask, and yield answers by the numbers of questions as they come in.

        The first is asked alone, so that what is wrong with every request shows at once.
        """
        self._stopped.clear()
        with self._client() as client:
            rest, most = enumerate(questions), 2 * self._concurrency
            for row, question in islice(rest, 1):
                yield {row: ask(client, question)}
            # Few requests are queued ahead, so that an error ends the run soon. Requests sent by
            # then may cost money, so we wait for their answers.
            running: dict[Future[Answered], int] = {}
            error: BaseException | None = None
            pool = ThreadPoolExecutor(self._concurrency)
            try:
                while True:
                    for row, question in () if error else islice(rest, most - len(running)):
                        running[pool.submit(ask, client, question)] = row
                    if not running:
                        break
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    rows = {future: running.pop(future) for future in done}
                    if good := {row: f.result() for f, row in rows.items() if not f.exception()}:
                        yield good
                    if failed := [future.exception() for future in done if future.exception()]:
                        error = error or failed[0]
                        if not isinstance(error, InterruptedError):
                            self._stopped.set()
                        running = {f: row for f, row in running.items() if not f.cancel()}
                if error:
                    raise error
            finally:
                self._stopped.set()
                pool.shutdown(cancel_futures=True)

    def take_requests(self, times: int) -> None:
        """Count requests that are to be sent; raise InterruptedError if they are too many."""
        with self._lock:
            self._left -= times
            if self._left < 0:
                raise InterruptedError(
                    f"{self.place}: stopped, as all questions that `max_requests` allows were "
                    "asked; what was answered is kept: the same command goes on"
                )

    def post(self, client: httpx.Client, body: Mapping[str, Any]) -> Any:
        """Post a request until it is answered; return the answer with our secrets masked."""
        import httpx

        for attempt in range(self._retries + 1):
            delay = min(self._backoff * 2.0**attempt, _LONGEST_WAIT) * random.uniform(0.8, 1.2)
            try:
                response = client.post(self._url, json=body)
            except httpx.HTTPError as error:  # also a body that is not encoded as it says
                problem = mask_secrets(self._mask(f"{type(error).__name__}: {error}"))
                problem += "; is the server running, and is the address right?"
            else:
                text = " ".join(response.text.split()) or response.reason_phrase
                shown = mask_secrets(self._mask(text))[:_SHOWN]
                status = response.status_code
                problem, hint = f"HTTP {status}: {shown}", _HINTS.get(status, "")
                if response.is_success:
                    with suppress(ValueError, RecursionError):
                        return self._mask(response.json())
                    problem = f"no JSON: {shown!r}"
                if status not in _MAY_PASS:
                    message = f"{self.place}: expected an answer, got {problem}{hint}"
                    raise ValueError(message) from None
                with suppress(ValueError):  # no such header, or a date
                    asked = float(response.headers.get("Retry-After", ""))
                    delay = min(max(asked, 0.0), _LONGEST_WAIT) or delay
            if attempt < self._retries:
                log.info("%s: %s; asking again in %.1f s", self.place, problem, delay)
                if self._stopped.wait(delay):
                    break
        raise ConnectionError(
            f"{self.place}: expected an answer, got none in {attempt + 1} attempts; the last one "
            f"ended in {problem}"
        )


class RemoteModel:
    """A model on a server that answers multiple-choice questions, from several threads.

    With `words`, it answers in words, and its final answer counts. Else a letter that is not among
    the alternatives gets the probability 0; its true probability is at most the lowest of theirs.
    """

    def __init__(
        self, request: ModelRequest, *, prompt: Prompt, words: Words | None = None, **more: Any
    ) -> None:
        """Prepare to ask, with `words` for answers in words; `more` is for the `Endpoint`.

        Only `answer` sends requests.
        """
        self.path = "chat/completions" if request.chat_template else "completions"
        self._endpoint = Endpoint(request, self.path, **more)
        self._request, self.name, self.prompt = request, mask_urls(request.model), prompt
        # Alternatives per token asked for: the most that OpenAI returns.
        self.words, self._top = words, 20 if request.chat_template else 5
        self._oddities = _Oddities({"", request.model, self.name})

    def describe(self) -> Description:
        """Describe the model and its prompt, as far as it can be known from outside.

        `missing_letters` is left out: a run that such an answer stopped may go on with another.
        """
        chat, own = self._request.chat_template, {"top_logprobs": self._top}
        identity = {
            "kind": "remote",
            "name": self.name,
            "revision": None,
            "endpoint": self._endpoint.place,
            **({"chat": chat} if self.words else own),
        }
        strict = self._request.strict_server
        return asked_by(self.prompt, self.words, identity, chat=chat, strict=strict)

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield probabilities of the labels, or answers in words, as they come in.

        A letter's probability is that of its token, with and without a space before it,
        among the letters' tokens.

        Raises:
            ValueError: the server refuses a request, or its answer is none that may be taken.
            ConnectionError: it could not be reached, or failed in every attempt.
        """
        before = time.perf_counter()
        for given in self._endpoint.answers(questions, self._ask):
            now = time.perf_counter()
            asked = [questions[row] for row in given]
            yield self.read([*given], [*given.values()], asked, seconds=now - before)
            before = now

    def body(self, pair: Pair) -> dict[str, Any]:
        """Make the body of the request about a problem."""
        payload: dict[str, Any] = {"model": self._request.model, "max_tokens": 1, "temperature": 0}
        if words := self.words:
            payload |= {"max_tokens": words.max_tokens, "temperature": words.temperature}
        if self._request.chat_template:
            payload |= {"messages": self.prompt.messages(*pair)}
            payload |= {} if words else {"logprobs": True, "top_logprobs": self._top}
        else:
            payload |= {"prompt": self.prompt.text(*pair)}
            payload |= {"stop": [self.prompt.stop]} if words else {"logprobs": self._top}
        payload |= words.more if words else {}
        return {name: value for name, value in payload.items() if value is not None}

    def _ask(self, client: httpx.Client, pair: Pair) -> list[Taken]:
        """Ask about a problem, once or as many times as there are samples of answers in words."""
        body, times = self.body(pair), self.words.samples if self.words else 1
        self._endpoint.take_requests(times)  # of a question all or none
        return [self.take(body, self._endpoint.post(client, body)) for _ in range(times)]

    def take(self, body: Mapping[str, Any], answer: Any) -> Taken:
        """Extract log-probabilities or an answer in words; raise ValueError if there is neither.

        Answers by another model, and to prompts that were cut, are noted, or raise if refused.
        """
        messages = body.get("messages") or [{"content": body.get("prompt", "")}]
        words = sum(len(str(message["content"]).split()) for message in messages)
        try:
            content = said_in(answer) if self.words else alternatives(answer)
            usage = answer.get("usage")
            usage = usage if isinstance(usage, dict) else {}
            self._oddities.note(answer.get("model"), usage.get("prompt_tokens"), words)
            if self._request.strict_server:
                require_as_asked("", {"name": self.name, **self._oddities.found()})
        except ValueError as error:
            raise ValueError(f"{self._endpoint.place}: {error}") from None
        counts = {"requests": 1}
        names = {"prompt_tokens": "prompt_tokens", "answer_tokens": "completion_tokens"}
        counts |= {name: usage[of] for name, of in names.items() if type(usage.get(of)) is int}
        return Taken(content, counts)

    def read(
        self,
        positions: list[int],
        given: Sequence[Sequence[Taken]],
        questions: Sequence[Pair],
        *,
        seconds: float | None = None,
    ) -> Answers:
        """Read answers, of which each question has as many as there are samples.

        With answers in words go their usage, and the `seconds` that passed for them, if known.
        """
        notes = self._oddities.found()
        if words := self.words:
            used = Counter[str]()
            for taken in chain.from_iterable(given):
                used.update(taken.counts)
            if seconds is not None:
                used["milliseconds"] = round(1000 * seconds)
            written = [[taken.content for taken in samples] for samples in given]
            return words.answers(
                self.prompt, questions, positions, written, counts=used, notes=notes
            )
        tops = [samples[0].content for samples in given]
        letters = self.prompt.template.letters
        rows = np.array([letter_probabilities(tokens, letters) for tokens in tops])
        is_missing, is_partial = ~rows.any(axis=1), ~rows.all(axis=1)
        if self._request.missing_letters == "error" and is_missing.any():
            first = int(is_missing.argmax())
            raise ValueError(
                f"{self._endpoint.place}: expected {', '.join(letters)} among the {self._top} most "
                f"probable tokens, got {sorted(tops[first])} for the pair {questions[first]}: ask "
                "for more, in a chat, or with more examples; or take such answers for equally "
                "probable labels with `missing_letters` uniform"
            )
        rows[is_missing] = 1
        counts = {
            "answers_partial": int((is_partial & ~is_missing).sum()),
            "answers_without_letters": int(is_missing.sum()),
        }
        probabilities = of_labels(self.prompt, questions, rows / rows.sum(axis=1, keepdims=True))
        return Answers.of(positions, probabilities, counts=counts, notes=notes)


# --- What answers hold ---


class Taken(NamedTuple):
    """An answer of a server."""

    content: Any
    """An answer in words, `Written`, or the first token's `alternatives`."""
    counts: Mapping[str, int]
    """1 request, and its tokens as far as the server counts them."""


def beginning(answer: Any) -> str:
    """Show the beginning of an answer; what looks like a secret is masked before it is cut."""
    return mask_secrets(str(answer))[:_SHOWN]


def alternatives(answer: Any) -> dict[str, float]:
    """Extract the first token's alternatives, in nats, from a completion of either endpoint."""
    log_probs: dict[str, float] = {"": math.nan}
    with suppress(*MALFORMED):
        given = _first_choice(answer)["logprobs"]
        if (content := given.get("content")) is not None:  # the format of /chat/completions
            records = [
                record for first in content[:1] for record in (*first["top_logprobs"], first)
            ]
            items = [(record["token"], record["logprob"]) for record in records]
        else:
            own = zip(given.get("tokens", []), given.get("token_logprobs", []), strict=False)
            top = [item for table in given["top_logprobs"][:1] for item in table.items()]
            items = [*top, *islice(own, 1), *top]
        log_probs = {str(token): float(value) for token, value in items}
    if any(math.isnan(value) or value > 1e-3 for value in log_probs.values()):
        raise ValueError(
            f"expected a completion with log-probabilities, got {beginning(answer)}: without them "
            "there are no probabilities of labels; llama.cpp's server and vLLM give them; without, "
            "ask for answers in words with `answers` words"
        )
    return log_probs


def said_in(answer: Any) -> Written:
    """Extract the answer, without the thinking, from a completion of either endpoint."""
    with suppress(*MALFORMED):
        choice = _first_choice(answer)
        if (message := choice.get("message")) is None:
            content = choice["text"]
        elif (content := message.get("content")) is None:
            content = message.get("refusal")
        if isinstance(content, list):  # a list of parts
            content = "".join(part.get("text", "") for part in content)
        if isinstance(content, str | None):
            return content or "", choice.get("finish_reason") == "length"
    raise ValueError(f"expected a completion, got {beginning(answer)}")


MALFORMED: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError, StopIteration)
"""Errors from reading a value of another form than expected."""


def _first_choice(answer: Any) -> dict[str, Any]:
    """Take the completion's choice of index 0, whatever its place."""
    choices = enumerate(answer["choices"])
    return next(dict(c) for n, c in choices if (n if c.get("index") is None else c["index"]) == 0)


# --- Oddities of answers, as metadata record them ---


class _Oddities:
    """Oddities that the answers of a server show so far, noted by several threads."""

    def __init__(self, names: Set[str]) -> None:
        """Begin without answers; `names` are those of the model that is asked for."""
        self._names, self._found, self._lock = names, dict[str, Any](), threading.Lock()
        self._most_tokens, self._lengths = 0, set[int]()
        """Largest token count of a prompt, and the numbers of words of the prompts with it."""

    def note(self, model: Any, tokens: Any, words: int) -> None:
        """Note an answer by its model's name and its prompt's number of tokens, as a server says.

        A prompt was cut if the server counts fewer tokens than it has words, or if prompts of
        several lengths, which differ by ten words or more, all have the largest number of tokens.
        """
        with self._lock:
            if isinstance(model, str) and model not in self._names:
                others = {*self._found.get("answered_as", ()), beginning(model)}
                self._found["answered_as"] = sorted(others)
            if type(tokens) is not int or tokens <= 0:
                return
            if tokens > self._most_tokens:
                self._most_tokens, self._lengths = tokens, set()
            if tokens == self._most_tokens:
                self._lengths.add(words)
            shortest, longest = min(self._lengths), max(self._lengths)
            is_limit = len(self._lengths) >= _ALIKE and longest - shortest >= 2 * _ALIKE
            if tokens < words or is_limit:
                cut = {"prompt_tokens": tokens, "prompt_words": max(words, longest)}
                self._found.setdefault("prompts_cut", cut)

    def found(self) -> dict[str, Any]:
        """Return the oddities so far, by their keys in metadata."""
        with self._lock:
            return dict(self._found)


def sentences(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Describe oddities of answers that the metadata of predictions record: key → sentence."""
    oddities, name = {}, metadata.get("name")
    if isinstance(models := metadata.get("answered_as"), list) and models:
        own = f"expected answers of the model {name}, the server says they are of "
        oddities["answered_as"] = own + ", ".join(map(str, models))
    with suppress(KeyError, TypeError, ValueError):  # no such key, or metadata of another program
        tokens, words = (metadata["prompts_cut"][f"prompt_{of}"] for of in ("tokens", "words"))
        oddities["prompts_cut"] = (
            f"expected whole prompts, the server seems to cut them: it counts {tokens:,} tokens "
            f"for {words:,} words; is its context too short?"
        )
    return oddities


def require_as_asked(where: str, metadata: Mapping[str, Any], remedy: str = "") -> None:
    """Raise ValueError if answers are odd; the message begins with `where`, ends with `remedy`."""
    for sentence in sentences(metadata).values():
        raise ValueError(f"{where}{sentence}; `strict_server` refuses such answers{remedy}")
