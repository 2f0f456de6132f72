"""NLI problems: read from anywhere, tagged, on disk, with the words their texts share."""
