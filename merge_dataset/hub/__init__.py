"""Publishing on the Hub: plan, one commit, loaded back, tagged."""
