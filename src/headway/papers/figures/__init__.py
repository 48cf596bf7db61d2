"""The pictures of a paper's item: what its runs measured, drawn as the paper draws it, beside what it prints.

`draw` chooses the kind and writes the files, `curves` and `sweeps` draw, `cells` has the data, `layout` the panels.
"""
