"""Publishing on the Hub: plan, one commit, loaded back, tagged.

`dataset.plan_dataset`, `publication.plan_metric` and `dataset.plan_results` make a plan, and
`publication.carry_out` carries it out.
"""
