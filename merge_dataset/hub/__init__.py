"""Publishing on the Hub: plan, one commit, loaded back, tagged.

`dataset.plan_dataset`, `metric.plan_metric` and `results.plan_results` make a `plan.Plan`, and
`plan.carry_out` carries it out.
"""
