"""People's judgements of variants: samples, a page to annotate them on, other tools' files."""
