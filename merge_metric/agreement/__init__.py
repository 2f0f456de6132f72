"""People's judgements of variants: agreement, shares of good variants, masked LMs to drop."""
