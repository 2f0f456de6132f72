"""One annotator's answers to one session, as the page sees and changes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Final

from merge_dataset.annotation.answers import (
    EQUIVALENCE,
    SCALE,
    SCORES,
    JudgementKind,
    Undo,
    append,
    current,
    parse_event,
    read_events,
    replay,
    require_kind,
)
from merge_dataset.annotation.sample import Item, Spans, replaced
from merge_dataset.annotation.session import Session
from merge_dataset.schema import PARAPHRASE


class OutdatedPage(Exception):
    """Answers were given that the page does not know of."""


class Desk:
    """Reads and saves the answers of one annotator, of whom nobody else's are shown.

    Every event has a position, from 0. A page says at which it wants to save: so an event
    that is sent again, because the reply was lost, is not saved twice, and of two pages the
    one that is behind is told.
    """

    def __init__(self, session: Session, annotator: str, path: Path) -> None:
        """Take up the answers in the file `path`, which nobody else writes meanwhile."""
        self.session = session
        self.annotator = annotator
        self._path = path
        self._lock = Lock()
        self._events = read_events(path)
        replay(self._events)

    def state(self) -> dict[str, Any]:
        """Describe all that the page needs to go on."""
        with self._lock:
            standing = replay(self._events)
            position = len(self._events)
        return {
            "annotator": self.annotator,
            "session": self.session.folder.resolve().name,
            "kind": self.session.kind,
            "scale": list(SCALE.values()),
            "items": [
                _SHOWN[self.session.kind](item)
                for item in shuffled(self.session.items, self.annotator)
            ],
            "standing": [asdict(answer) for answer in standing if self._knows(answer.variant_id)],
            "position": position,
        }

    def save(self, position: int, record: object) -> int:
        """Save an answer or its undoing; when this returns, it is on the disk.

        Args:
            position: How many events the page knows.
            record: The event, as `parse_event` takes it.

        Returns:
            How many events there are now.

        Raises:
            OutdatedPage: the page does not know all events.
            OSError: it could not be saved.
            ValueError: it is no event, or not one of this session.
        """
        event = parse_event(record)
        if not self._knows(event.variant_id):
            raise ValueError(f"expected a variant of the session, got {event.variant_id!r}")
        if not isinstance(event, Undo):
            require_kind(event, self.session.kind)
        with self._lock:
            if self._events[position:] == [event]:
                return len(self._events)
            if position != len(self._events):
                raise OutdatedPage(
                    f"{len(self._events)} events are saved, the page knows {position}"
                )
            replay([*self._events, event])
            try:
                append(self._path, [event])
            except OSError:
                self._events = read_events(self._path)
                raise
            self._events.append(event)
            return len(self._events)

    def progress(self) -> tuple[int, int]:
        """Count the variants that are answered, and all of them."""
        with self._lock:
            answers = current(replay(self._events))
        return sum(map(self._knows, answers)), len(self.session.items)

    def _knows(self, variant: str) -> bool:
        return variant in self.session.items


def shuffled(items: Mapping[str, Item], annotator: str) -> list[Item]:
    """Put items in an order of the annotator's own, always the same: tiredness falls on others."""

    def rank(item: Item) -> bytes:
        return hashlib.sha256(f"{annotator}\0{item.variant_id}".encode()).digest()

    return sorted(items.values(), key=rank)


def _shown(item: Item) -> dict[str, Any]:
    """Describe an item as an annotator may see it: without the masked LMs that suggested it."""
    texts = [
        {
            "field": field,
            "original": pieces(item.seed_texts[field], item.seed_spans[field]),
            "variant": pieces(text, item.variant_spans[field]),
        }
        for field, text in item.variant_texts.items()
    ]
    changes: list[tuple[str, str]] = []
    if item.word_class != PARAPHRASE:
        pairs = replaced(item.original, item.replacement, item.word_class)
        changes = [(old, new) for new, old in pairs.items()]
    shown = {"id": item.variant_id, "label": item.label, "changes": changes, "texts": texts}
    return shown | {"shared": []}


def _shown_pair(item: Item) -> dict[str, Any]:
    """Describe a pair to judge the meaning of: what both share, and what is said twice.

    The label is left out, which has nothing to do with it, and so are marks: all of it changed.
    """
    shared, texts = [], []
    for field, text in item.variant_texts.items():
        original = item.seed_texts[field]
        if text == original:
            shared.append({"field": field, "text": text})
        else:
            plain = {"original": pieces(original, []), "variant": pieces(text, [])}
            texts.append({"field": field, **plain})
    return {"id": item.variant_id, "label": None, "changes": [], "texts": texts, "shared": shared}


_SHOWN: Final[Mapping[JudgementKind, Callable[[Item], dict[str, Any]]]] = {
    SCORES: _shown,
    EQUIVALENCE: _shown_pair,
}


def pieces(text: str, spans: Spans) -> list[tuple[str, bool]]:
    """Cut a text into pieces, marked or not, as offsets mean other things in JavaScript.

    >>> pieces("A girl runs.", [[2, 6]])
    [('A ', False), ('girl', True), (' runs.', False)]
    """
    bounds = [0, *(offset for span in spans for offset in span), len(text)]
    cut = [(text[a:b], i % 2 == 1) for i, (a, b) in enumerate(pairwise(bounds))]
    return [(piece, marked) for piece, marked in cut if piece]
