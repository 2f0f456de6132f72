"""Suggestions of masked LMs: questions, answers, and the store that keeps them."""
