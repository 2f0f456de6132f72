"""What people's judgements of variants say: agreement, shares of good variants, masked LMs to drop.

Answers come from `merge_dataset.annotation`. `findings` puts all together; every table is a
`merge_metric.tables.Table`.
"""
