"""People's judgements of variants: agreement, shares of good variants, masked LMs to drop.

Answers come from `merge_dataset.annotation`. `judgements` reads them, `coefficients` has κ, α and
ρ, `annotators` and `shares` make tables, `overview` puts all together and draws.
"""
