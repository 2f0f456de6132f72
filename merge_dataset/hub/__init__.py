"""Publishing on the Hub: make a plan, commit once, load back, tag."""
