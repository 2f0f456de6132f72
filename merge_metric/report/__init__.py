"""Models' predictions → one report: HTML that opens offline, Markdown, LaTeX, JSON.

See `evidence.gather` for what is put together, `write.write_report` for the file.
"""
