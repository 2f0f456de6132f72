"""The two phases of a run, and the order of their steps.

`slices` is the way in: it runs `suggest` and `build`, of all problems or slice by slice.
`build_blocks` takes a block of problems through a build.
"""
