"""NLI problems: read from anywhere, tagged, on disk, with the words their texts share.

`sources` reads them (with `hub_datasets`), `on_disk` keeps them sorted in blocks,
`tagging` (with `sparse_tagger`) tags texts and `substitutions` in them, `shared_words` finds the
shared words, `morphology` has lemmas and forms.
"""
