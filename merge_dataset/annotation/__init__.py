"""Human judgements of variants: samples, a page for annotation, files of other tools."""
