"""NLI problems: sources, tagging, shared words of the texts, and storage on disk."""
