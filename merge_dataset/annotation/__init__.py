"""People's judgements of variants: samples, a page to annotate them on, other tools' files.

`session.draw` and `session.open_session` choose what is judged, `server.serving` serves the page,
`transfer` exchanges items and answers with other tools (`READERS`, `RENDERERS`) and reads answers
as a table.
"""
