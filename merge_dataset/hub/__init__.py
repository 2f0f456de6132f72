"""Publishing on the Hub: plan, commit, load back, tag."""
