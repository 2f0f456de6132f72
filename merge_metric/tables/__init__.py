"""One table, and the text, Markdown, LaTeX, CSV, JSON and plots made of it."""
