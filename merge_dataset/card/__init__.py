"""The dataset card, README.md: a pure function of the folder's files.

`render.render` puts it together from figures of the data and from `text`.
"""
