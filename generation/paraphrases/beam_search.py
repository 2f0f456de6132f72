"""Group beam search over any model that says which tokens are likely to come next.

Beams are dealt to groups. At every step the groups choose in order, each by a beam search of
its own, in which a token is the less worth the more beams of earlier groups have just chosen
it (Vijayakumar et al., 2016, arXiv:1610.02424, with Hamming diversity). Within a group, the
n-th best continuation of the same beam is the less worth the larger n (Li, Monroe and
Jurafsky, 2016, arXiv:1611.08562).

- A beam's score is its log-probability less its diversity penalties so far: what tells it from
  earlier groups at one step does so for good. Sibling penalties decide one step and are gone.
- An end is a continuation like others, but without diversity penalty: to be as long as another
  is not to be alike.
- A beam ends where its end is among the group's best, as many as it has beams. A group is done
  as soon as so many of its beams have ended, and its other beams are given up; should more of
  them end at once, those with most log-probability per token stay. At the last step beams
  that have not ended take the places left.

Tokens, scores and penalties are NumPy's: a model hands over the few most likely tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from generation.paraphrases.config import Decoding

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Following(NamedTuple):
    """Likely next tokens, for each row that a model has read so far."""

    tokens: Ints
    """[rows, k] the most probable tokens that do not end a text, the best first."""
    log_probs: Floats
    """[rows, k] their log-probabilities in nats, at the temperature."""
    ends: Ints
    """[rows] the most probable token that ends the text."""
    end_log_probs: Floats
    """[rows]"""


class NextTokens(Protocol):
    """A model that has read some rows of tokens: at first one per request."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens there are."""

    def start(self, k: int) -> Following:
        """Return likely first tokens, a row per request; `k` of them, or all there are."""

    def advance(self, rows: Ints, tokens: Ints, k: int) -> Following:
        """Return likely next tokens; row i now is row `rows[i]` as it was, then `tokens[i]`."""


@dataclass(frozen=True, slots=True)
class Beam:
    """One output of the search."""

    tokens: tuple[int, ...]
    """Its tokens, with the one that ends it where it has ended."""
    finished: bool
    score: float
    """Log-probability per token, without penalties."""


class _Lanes(NamedTuple):
    """The groups of requests that still search, group by group."""

    requests: Ints
    """[lanes]"""
    groups: Ints
    """[lanes]"""
    rows: Ints
    """[lanes, beams] the rows of the model's answer."""
    tokens: Ints
    """[lanes, beams, steps]"""
    log_probs: Floats
    """[lanes, beams]"""
    scores: Floats
    """[lanes, beams] log-probabilities less diversity penalties."""

    def take(self, which: NDArray[np.bool_]) -> _Lanes:
        """Keep some of the lanes, in order."""
        return _Lanes._make(values[which] for values in self)


def search(
    model: NextTokens, decoding: Decoding, earlier: Sequence[Sequence[Sequence[int]]]
) -> list[list[Beam]]:
    """Search for as many beams as asked for, for every request of a batch.

    Args:
        model: Has read the requests' prompts.
        decoding: Beams, groups, penalties and the most new tokens.
        earlier: For each request, tokens of texts that count as beams of groups before the
            first.

    Returns:
        For each request `num_beams` beams: each group's best, group by group, then each
        group's second best, and so on. Those that have ended come before those that have not.
    """
    found: list[list[list[Beam]]] = [[[] for _ in range(decoding.num_beam_groups)] for _ in earlier]
    n_requests, n_groups, size = len(earlier), decoding.num_beam_groups, decoding.group_size
    requests = np.tile(np.arange(n_requests), n_groups)
    lanes = _Lanes(  # every group of every request, with nothing but the prompt
        requests=requests,
        groups=np.repeat(np.arange(n_groups), n_requests),
        rows=requests[:, None],
        tokens=np.empty((len(requests), 1, 0), np.int64),
        log_probs=np.zeros((len(requests), 1)),
        scores=np.zeros((len(requests), 1)),
    )
    counts = np.zeros((len(earlier), model.vocabulary), np.int32)
    for step in range(decoding.max_new_tokens):
        taken = [[ids[step] for ids in texts if step < len(ids)] for texts in earlier]
        counts.fill(0)
        for request, tokens in enumerate(taken):
            np.add.at(counts[request], tokens, 1)
        # As many as are sure to hold the best after penalties: what is neither penalised nor among
        # them is beaten by as many as a group has beams.
        k = size
        if decoding.diversity_penalty:
            k = decoding.num_beams + max((len(set(tokens)) for tokens in taken), default=0)
        if step == 0:
            following = model.start(k)
        else:
            following = model.advance(lanes.rows.ravel(), lanes.tokens[..., -1].ravel(), k)
            lanes = lanes._replace(rows=np.arange(lanes.rows.size).reshape(lanes.rows.shape))
        lanes = _step(lanes, following, decoding, counts, found)
        if not lanes.requests.size:
            break
    # Beams cut at the last step take the places left.
    per_token = lanes.log_probs / max(1, lanes.tokens.shape[-1])
    for lane, (request, group) in enumerate(zip(lanes.requests, lanes.groups, strict=True)):
        ended = sorted(found[request][group], key=lambda beam: -beam.score)
        best = np.argsort(-per_token[lane], kind="stable")[: size - len(ended)]
        found[request][group] = ended + [
            Beam(tuple(lanes.tokens[lane, i].tolist()), False, float(per_token[lane, i]))
            for i in best
        ]
    return [[beam for rank in zip(*groups, strict=True) for beam in rank] for groups in found]


def _step(
    lanes: _Lanes,
    following: Following,
    decoding: Decoding,
    counts: NDArray[np.int32],
    found: list[list[list[Beam]]],
) -> _Lanes:
    """Take one step of all groups; `counts` and `found` are added to.

    Args:
        lanes: Groups that search.
        following: Tokens that may come next in their rows.
        decoding: See `search`.
        counts: [requests, vocabulary] how often earlier beams have chosen a token.
        found: Beams that have ended, by request and group.

    Returns:
        What goes on, one token longer; its rows are those that it continues.
    """
    going_on = []
    for group in range(decoding.num_beam_groups):
        mine = lanes.take(lanes.groups == group)
        if not mine.requests.size:
            continue
        longer, ends = _step_of_group(mine, following, decoding, counts)
        for lane, beam in np.argwhere(ends):
            row = mine.rows[lane, beam]
            tokens = (*mine.tokens[lane, beam].tolist(), int(following.ends[row]))
            log_prob = mine.log_probs[lane, beam] + following.end_log_probs[row]
            ended = Beam(tokens, finished=True, score=float(log_prob) / len(tokens))
            found[mine.requests[lane]][group].append(ended)
        is_done = []
        for request in mine.requests:
            beams = found[request][group]
            beams.sort(key=lambda beam: -beam.score)
            del beams[decoding.group_size :]
            is_done.append(len(beams) == decoding.group_size)
        longer = longer.take(~np.array(is_done))
        np.add.at(counts, (longer.requests[:, None], longer.tokens[..., -1]), 1)
        going_on.append(longer)
    return _Lanes._make(np.concatenate(values) for values in zip(*going_on, strict=True))


def _step_of_group(
    lanes: _Lanes, following: Following, decoding: Decoding, counts: NDArray[np.int32]
) -> tuple[_Lanes, NDArray[np.bool_]]:
    """Take one step of one group of all requests.

    Returns:
        The beams to go on with, and which of `lanes` end, [lanes, beams].
    """
    size, lane = decoding.group_size, np.arange(len(lanes.requests))[:, None]
    tokens, log_probs = following.tokens[lanes.rows], following.log_probs[lanes.rows]
    penalties = decoding.diversity_penalty * counts[lanes.requests[:, None, None], tokens]
    scores = lanes.scores[..., None] + log_probs - penalties
    # Each beam's children, the best first. Sorts are stable: of equals the first one stays.
    children = np.argsort(-scores, axis=-1, kind="stable")[..., :size]
    of_children = np.take_along_axis(scores, children, -1)
    of_ends = (lanes.scores + following.end_log_probs[lanes.rows])[..., None]
    ranks = np.arange(children.shape[-1]) + (of_ends > of_children)
    worth = of_children - decoding.sibling_penalty * ranks
    of_ends = of_ends - decoding.sibling_penalty * (scores >= of_ends).sum(-1, keepdims=True)
    best = np.argsort(-worth.reshape(len(lane), -1), axis=-1, kind="stable")[:, :size]
    parents, rank = np.divmod(best, children.shape[-1])
    child = children[lane, parents, rank]
    longer = _Lanes(
        requests=lanes.requests,
        groups=lanes.groups,
        rows=lanes.rows[lane, parents],
        tokens=np.concatenate(
            [lanes.tokens[lane, parents], tokens[lane, parents, child][..., None]], axis=-1
        ),
        log_probs=lanes.log_probs[lane, parents] + log_probs[lane, parents, child],
        scores=scores[lane, parents, child],
    )
    # Beams end whose end is among the best of ends and children.
    n_beams = of_ends.shape[1]
    both = np.concatenate([of_ends[..., 0], worth.reshape(len(lane), -1)], axis=-1)
    is_best = np.zeros(both.shape, np.bool_)
    best = np.argsort(-both, axis=-1, kind="stable")[:, :size]
    np.put_along_axis(is_best, best, True, axis=-1)
    return longer, is_best[:, :n_beams]
