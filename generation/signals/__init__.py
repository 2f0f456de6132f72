"""The command `signals`: what replacements change in the likelihood of texts."""
