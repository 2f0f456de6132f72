"""Language models behind an OpenAI-compatible server: a prompt per request, several at a time."""

from __future__ import annotations

import logging
import math
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from merge_dataset.redaction import mask_known, mask_secrets, mask_urls, secrets_in, spellings
from merge_metric.models.answer_words import letter_probabilities
from merge_metric.models.odd_answers import OddAnswers, beginning
from merge_metric.models.pair_model import Answers, Description, Pair
from merge_metric.models.templates import Prompt
from merge_metric.models.written_answers import Words, WrittenAnswer

if TYPE_CHECKING:
    import httpx

_TOP: Final = {"completions": 5, "chat/completions": 20}
"""Endpoint → number of alternatives per token asked for: the most that OpenAI returns."""

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

Missing = Literal["error", "uniform"]
"""Treatment of an answer without letters: stop, or equal probabilities of the labels."""

log = logging.getLogger(__name__)


class RemoteModel:
    """A model on a server that answers multiple-choice questions.

    With `words`, it answers in words, and its final answer counts. Else a letter that is not among
    the alternatives gets the probability 0; its true probability is at most the lowest of theirs.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        prompt: Prompt,
        chat: bool = False,
        api_key_env: str | None = None,
        api_key: str | None = None,
        concurrency: int = 8,
        timeout: float = 120.0,
        retries: int = 6,
        backoff: float = 1.0,
        missing: Missing = "error",
        strict: bool = False,
        words: Words | None = None,
        max_requests: int | None = None,
    ) -> None:
        """Prepare to ask; only `answer` sends requests.

        Args:
            base_url: What stands before `/completions`, such as `http://localhost:8000/v1`.
            model: What the server calls the model.
            prompt: What it is asked.
            chat: Ask `/chat/completions`, in the server's chat template.
            api_key_env: Environment variable that holds the key; by default none is sent.
            api_key: The key itself, where a program has it.
            concurrency: Requests at a time.
            timeout: Seconds without a byte after which a request counts as broken.
            retries: How often a request is repeated that failed for what may pass.
            backoff: Seconds before the first repetition; see `Endpoint`.
            missing: Where none of the letters is among them: stop, or take the labels for
                equally probable (the prediction is then the first one, entailment).
            strict: Refuse answers of another model than asked for, and of prompts that were cut;
                by default they are noted.
            words: Ask for answers in words, with these settings.
            max_requests: Stop before a question with which there would be more requests.

        Raises:
            ValueError: the URL is none, the variable is not set, the key has characters that no
                header can have, or a question takes more requests than are allowed.
        """
        key, place = api_key, f"the environment variable {api_key_env}" * (api_key is None)
        if api_key_env is not None and not (key := os.environ.get(api_key_env, "").strip()):
            raise ValueError(f"expected an API key in {place or '`api_key`'}, found none")
        odd = next((n for n, c in enumerate(key or "") if not "!" <= c <= "~"), None)
        if odd is not None:
            raise ValueError(
                f"expected an API key of ASCII letters, digits and signs in "
                f"{place or '`api_key`'}, got one whose character {odd + 1} of {len(key or '')} "
                "is none, such as a space; copy it again"
            )
        self.path = "chat/completions" if chat else "completions"
        retrying = retries, backoff, timeout
        self._endpoint = Endpoint(base_url, self.path, key, concurrency, retrying)
        self._asked_for, self.name, self.prompt = model, mask_urls(model), prompt
        self._strict = strict
        self.chat, self._concurrency, self._missing = chat, concurrency, missing
        self._top = _TOP[self.path]
        self._odd = OddAnswers(self.name, model, strict=strict)
        if words and max_requests is not None and max_requests < words.samples:
            raise ValueError(
                f"max_requests: expected at least {words.samples}, which a question takes with "
                f"`samples` {words.samples}, got {max_requests}"
            )
        self.words, self._left = words, max_requests
        self._lock, self._used, self._since = threading.Lock(), dict[str, int](), 0.0

    def describe(self) -> Description:
        """Describe the model and its prompt, as far as it can be known from outside.

        `missing` is left out: a run that an answer without letters stopped may go on with another.
        """
        words = self.words
        return Description(
            identity={
                "kind": "remote",
                "name": self.name,
                "revision": None,
                "endpoint": self._endpoint.name,
                **({"chat": self.chat} if words else {"top_logprobs": self._top}),
                **self.prompt.describe(),
                **(words.describe() if words else {}),
            },
            prompt=self.prompt,
            chat=self.chat,
            samples=words.samples if words else 1,
            answer_tokens=words.most_tokens if words else 1,
            strict=self._strict,
        )

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield probabilities of the labels, or answers in words, as they come in.

        A letter's probability is that of its token, with and without a space before it,
        among the letters' tokens. The first pair is asked alone, so that what is wrong with
        every request shows at once.

        Raises:
            ValueError: the server refuses a request, or its answer is none that may be taken.
            ConnectionError: it could not be reached, or failed in every attempt.
        """
        if not questions:
            return
        self._since = time.perf_counter()
        endpoint = self._endpoint
        endpoint.stopped.clear()
        with endpoint.client() as client:
            yield self.read([0], [self._ask(questions[0], client)], questions[:1])
            # Few requests are queued ahead, so that an error ends the run soon. Requests sent by
            # then may cost money, so we wait for their answers.
            rest = iter(range(1, len(questions)))
            running: dict[Future[Any], int] = {}
            error: BaseException | None = None
            pool = ThreadPoolExecutor(self._concurrency)
            try:
                while True:
                    for row in () if error else islice(rest, 2 * self._concurrency - len(running)):
                        running[pool.submit(self._ask, questions[row], client)] = row
                    if not running:
                        break
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    rows = {future: running.pop(future) for future in done}
                    good = [future for future in done if not future.exception()]
                    if good:
                        finished = [rows[future] for future in good]
                        answers = [future.result() for future in good]
                        yield self.read(finished, answers, [questions[i] for i in finished])
                    failed = [future.exception() for future in done if future.exception()]
                    if failed and not error:
                        error = failed[0]
                        if not isinstance(error, InterruptedError):
                            endpoint.stopped.set()
                        running = {f: row for f, row in running.items() if not f.cancel()}
                if error:
                    raise error
            finally:
                endpoint.stopped.set()
                pool.shutdown(cancel_futures=True)

    def body(self, pair: Pair) -> dict[str, Any]:
        """Make the body of the request about a problem."""
        payload: dict[str, Any] = {"model": self._asked_for, "max_tokens": 1, "temperature": 0}
        if words := self.words:
            payload |= {"max_tokens": words.max_tokens, "temperature": words.temperature}
        if self.chat:
            payload |= {"messages": self.prompt.messages(*pair)}
            payload |= {} if words else {"logprobs": True, "top_logprobs": self._top}
        else:
            payload |= {"prompt": self.prompt.text(*pair)}
            payload |= {"stop": [self.prompt.stop]} if words else {"logprobs": self._top}
        payload |= words.more if words else {}
        return {name: value for name, value in payload.items() if value is not None}

    def _ask(self, pair: Pair, client: httpx.Client) -> Any:
        """Ask about a problem, once or as many times as there are samples of answers in words."""
        body = self.body(pair)
        times = self.words.samples if self.words else 1
        with self._lock:  # all requests of a question or none, as incomplete answers are not kept
            if self._left is not None:
                if self._left < times:
                    raise InterruptedError(
                        f"{self._endpoint.name}: stopped, as all questions that `max_requests` "
                        "allows were asked; what was answered is kept: the same command goes on"
                    )
                self._left -= times
        answers = [self.take(body, self._endpoint.post(client, body)) for _ in range(times)]
        return answers if self.words else answers[0]

    def take(self, body: Mapping[str, Any], answer: Any) -> Any:
        """Extract log-probabilities or a `WrittenAnswer`; raise ValueError if there is neither."""
        messages = body.get("messages") or [{"content": body.get("prompt", "")}]
        text = "\n".join(str(message["content"]) for message in messages)
        try:
            self._odd.look_at(answer, text)
            if not self.words:
                return alternatives(answer)
            written = said_in(answer)
        except ValueError as error:
            raise ValueError(f"{self._endpoint.name}: {error}") from None
        usage = answer.get("usage") if isinstance(answer.get("usage"), dict) else {}
        with self._lock:
            self._used["requests"] = self._used.get("requests", 0) + 1
            for name in ("prompt_tokens", "completion_tokens"):
                if type(usage.get(name)) is int:
                    kept = name.replace("completion", "answer")
                    self._used[kept] = self._used.get(kept, 0) + usage[name]
        return written

    def read(
        self, positions: list[int], given: Sequence[Any], questions: Sequence[Pair]
    ) -> Answers:
        """Read what `take` extracted from answers; add usage, time and oddities since the last."""
        if words := self.words:
            now = time.perf_counter()
            with self._lock:
                used, self._used = self._used, {}
            if self._since:
                used["milliseconds"] = round(1000 * (now - self._since))
                self._since = now
            more = {"counts": used, "notes": self._odd.notes()}
            return words.answers(self.prompt, questions, positions, given, **more)
        letters = self.prompt.template.letters
        rows = np.array([letter_probabilities(tokens, letters) for tokens in given])
        is_missing, is_partial = ~rows.any(axis=1), ~rows.all(axis=1)
        if self._missing == "error" and is_missing.any():
            first = int(is_missing.argmax())
            raise ValueError(
                f"{self._endpoint.name}: expected {', '.join(letters)} among the {self._top} most "
                f"probable tokens, got {sorted(given[first])} for the pair {questions[first]}: ask "
                "for more, in a chat, or with more examples; or take such answers for equally "
                "probable labels with `missing_letters` uniform"
            )
        rows[is_missing] = 1
        counts = {
            "answers_partial": int((is_partial & ~is_missing).sum()),
            "answers_without_letters": int(is_missing.sum()),
        }
        probabilities = rows / rows.sum(axis=1, keepdims=True)
        return Answers.of(positions, probabilities, counts=counts, notes=self._odd.notes())


def alternatives(answer: Any) -> dict[str, float]:
    """Extract the first token's alternatives, in nats, from a completion of either endpoint."""
    try:
        choice = _first_choice(answer)
        given = choice.get("logprobs") or {}
        left_out = given.get("content") is None and given.get("top_logprobs") is None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise ValueError(f"expected a completion, got {beginning(answer)}") from None
    if left_out:
        raise ValueError(
            "expected log-probabilities, got an answer without: this server leaves them out, "
            "and without them there are no probabilities of labels; llama.cpp's server and vLLM "
            "give them; without, ask for answers in words with `answers` words"
        )
    try:
        if (content := given.get("content")) is not None:  # the format of /chat/completions
            records = [
                record for first in content[:1] for record in (*first["top_logprobs"], first)
            ]
            log_probs = {str(record["token"]): float(record["logprob"]) for record in records}
        else:
            tables = given["top_logprobs"][:1]
            log_probs = {str(key): float(value) for table in tables for key, value in table.items()}
            own = zip(given.get("tokens", []), given.get("token_logprobs", []), strict=False)
            for token, value in list(own)[:1]:
                log_probs.setdefault(str(token), float(value))
        if any(math.isnan(value) or value > 1e-3 for value in log_probs.values()):
            raise ValueError(log_probs)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise ValueError(f"expected log-probabilities, got {beginning(given)}") from None
    return log_probs


def _first_choice(answer: Any) -> Any:
    """Take the completion's choice of index 0, whatever its place."""
    numbered = enumerate(answer["choices"])
    (choice,) = (it for n, it in numbered if (n if it.get("index") is None else it["index"]) == 0)
    return choice


def said_in(answer: Any) -> WrittenAnswer:
    """Extract the answer, without the thinking, from a completion of either endpoint."""
    try:
        choice = _first_choice(answer)
        if (message := choice.get("message")) is None:
            content = choice["text"]
        elif (content := message.get("content")) is None:
            content = message.get("refusal")
        if isinstance(content, list):  # a list of parts
            content = "".join(part.get("text", "") for part in content)
        if content is not None and not isinstance(content, str):
            raise TypeError(content)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise ValueError(f"expected a completion, got {beginning(answer)}") from None
    return WrittenAnswer(content or "", choice.get("finish_reason") == "length")


class Endpoint:
    """A URL that receives JSON by POST, from several threads at a time."""

    def __init__(
        self,
        base_url: str,
        path: str,
        key: str | None,
        connections: int,
        retrying: tuple[int, float, float],
    ) -> None:
        """Prepare a client of `base_url`/`path`; nothing is sent.

        `key` is sent as a bearer token; like the URL's query it appears in no message. `retrying`
        is (largest number of retries, seconds before the first retry, seconds without a byte after
        which an attempt fails). The wait doubles with each retry, up to a minute; the server's
        `Retry-After` takes precedence.
        """
        import httpx

        try:
            parsed = httpx.URL(base_url)
        except httpx.InvalidURL:
            parsed = httpx.URL()
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            _, at, host = mask_urls(base_url).rpartition("@")
            got = f"***@{host}" if at else host
            raise ValueError(f"expected a URL like http://localhost:8000/v1, got {got!r}")
        parsed = parsed.copy_with(path=f"{parsed.path.rstrip('/')}/{path}")
        self.name = mask_urls(str(parsed.copy_with(username=None, password=None, query=None)))
        self._url = parsed
        given = [key, parsed.username, parsed.password, *parsed.params.values()]
        given += secrets_in(parsed.path)
        self._secrets = spellings(filter(None, given))
        self._retries, self._backoff, timeout = retrying
        self.stopped = threading.Event()
        """Event that stops all waiting for further attempts."""
        limits = httpx.Limits(max_connections=connections)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.client = partial(httpx.Client, headers=headers, timeout=timeout, limits=limits)

    def post(self, client: httpx.Client, payload: dict[str, Any]) -> Any:
        """Post JSON by a `client` of this endpoint, and return the answer with our secrets masked.

        Raises ValueError if it is refused or is no JSON, ConnectionError if all attempts fail.
        """
        import httpx

        for attempt in range(self._retries + 1):
            delay = min(self._backoff * 2.0**attempt, _LONGEST_WAIT) * random.uniform(0.8, 1.2)
            try:
                response = client.post(self._url, json=payload)
            except httpx.RequestError as error:  # also a body that is not encoded as it says
                problem = mask_secrets(f"{type(error).__name__}: {error}", self._secrets)
                problem += "; is the server running, and is the address right?"
            else:
                if response.is_success:
                    try:
                        return self._without_secrets(response.json())
                    except (ValueError, RecursionError):
                        raise ValueError(
                            f"{self.name}: expected JSON, got {self._shown(response)!r}"
                        ) from None
                problem = f"HTTP {response.status_code}: {self._shown(response)}"
                if response.status_code not in _MAY_PASS:
                    hint = _HINTS.get(response.status_code, "")
                    raise ValueError(f"{self.name}: expected an answer, got {problem}{hint}")
                with suppress(ValueError):  # no such header, or a date
                    asked = float(response.headers.get("Retry-After", ""))
                    delay = min(max(asked, 0.0), _LONGEST_WAIT) or delay
            if attempt < self._retries:
                log.info("%s: %s; asking again in %.1f s", self.name, problem, delay)
                if self.stopped.wait(delay):
                    break
        raise ConnectionError(
            f"{self.name}: expected an answer, got none in {attempt + 1} attempts; the last one "
            f"ended in {problem}"
        )

    def _shown(self, response: httpx.Response) -> str:
        text = " ".join(response.text.split()) or response.reason_phrase
        return mask_secrets(text, self._secrets)[:_SHOWN]

    def _without_secrets(self, value: Any) -> Any:
        mask = self._without_secrets
        if isinstance(value, str):
            return mask_known(value, self._secrets)
        if isinstance(value, list):
            return [mask(item) for item in value]
        return {mask(k): mask(v) for k, v in value.items()} if isinstance(value, dict) else value
