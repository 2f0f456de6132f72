"""Human judgements of variants: samples, a page to annotate them on, other tools' files.

See `sample.draw`, `server.serve`, `answers.read_answers`, `label_studio` and `tables`.
"""
