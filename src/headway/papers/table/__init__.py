"""The table of an item: measured and published numbers with their gap, in every format.

`entries` has the numbers and `rows` the same as plain data; `sheets` makes texts of them, which `formats` writes with
the title and the lines below of `captions`.
"""

from headway.papers.table.captions import below, caption, title
from headway.papers.table.entries import Entry, entries
from headway.papers.table.formats import latex, markdown, terminal
from headway.papers.table.rows import comma_separated, number_row, plain
from headway.papers.table.sheets import size

__all__ = [
    "Entry",
    "below",
    "caption",
    "comma_separated",
    "entries",
    "latex",
    "markdown",
    "number_row",
    "plain",
    "size",
    "terminal",
    "title",
]
