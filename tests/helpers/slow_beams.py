"""Group beam search the slow and obvious way: one request, whole vocabulary, plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from generation.paraphrases.config import ParaphraseConfig
from generation.paraphrases.text_generator import Beam

Tokens = tuple[int, ...]


def slow_search(
    log_probs: Callable[[Tokens], Sequence[float]],
    ends: Collection[int],
    never: Collection[int],
    decoding: ParaphraseConfig,
    earlier: Sequence[Sequence[int]] = (),
) -> list[Beam]:
    """The best of each group, then the second best, and so on.

    `log_probs` are those of every token after some new ones, at the request's temperature. `never`
    holds tokens that are not chosen, ends included; `earlier` counts as chosen before the first.
    """
    size = decoding.num_beams // decoding.num_beam_groups
    groups: list[list[tuple[Tokens, float, float]]] = [
        [((), 0.0, 0.0)] for _ in range(decoding.num_beam_groups)
    ]
    found: list[list[Beam]] = [[] for _ in groups]
    for step in range(decoding.max_new_tokens):
        chosen = Counter(ids[step] for ids in earlier if step < len(ids))
        for g, beams in enumerate(groups):
            options = []
            for tokens, log_prob, score in beams:
                p = log_probs(tokens)
                end = max(ends, key=lambda t: p[t])
                children = [
                    (score + p[t] - decoding.diversity_penalty * chosen[t] * (t != end), t)
                    for t in range(len(p))
                    if t == end or t not in never
                ]
                for rank, (s, t) in enumerate(sorted(children, key=lambda child: -child[0])):
                    worth = s - decoding.sibling_penalty * rank
                    options.append((worth, t == end, (*tokens, t), log_prob + p[t], s))
            options.sort(key=lambda option: -option[0])
            for _, ended, tokens, log_prob, _ in options[:size]:
                if ended:
                    found[g].append(Beam(tokens, True, log_prob / len(tokens)))
            found[g] = sorted(found[g], key=lambda beam: -beam.score)[:size]
            going_on = [o for o in options if not o[1]][:size]
            groups[g] = [] if len(found[g]) == size else [o[2:] for o in going_on]
            chosen.update(tokens[-1] for tokens, _, _ in groups[g])
    for g, beams in enumerate(groups):
        cut = [Beam(t, False, log_prob / len(t)) for t, log_prob, _ in beams]
        found[g] += sorted(cut, key=lambda beam: -beam.score)
    return [found[g][i] for i in range(size) for g in range(len(groups))]
