"""Human judgements of variants: samples, files to fill in, and the answers in them."""
