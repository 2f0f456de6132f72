"""Suggestions of masked LMs: questions, answers, and the store that keeps them.

In the order of the path: `questions` (what is masked, dealt to shards), `masked_lm` with
`word_pieces` and `vocabulary` (the most probable words), `ask` (a unit of that work), `store`
(answers on disk, and what is still missing).
"""
