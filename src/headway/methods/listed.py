"""What methods there are, as a table for Python."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from headway.methods.catalogue import METHODS
from headway.methods.method_notes import purpose
from headway.methods.spelling import defaults

if TYPE_CHECKING:
    import pandas


def list_methods() -> pandas.DataFrame:
    """Every method of the catalogue: what it is for, its equations, and its arguments with their defaults."""
    import pandas

    rows = {
        name: {
            "purpose": purpose(name),
            "equations": (inspect.getdoc(entry.build) or "").partition("\n")[0],
            "arguments": ",".join(f"{argument}={value}" for argument, value in defaults(entry).items()),
        }
        for name, entry in METHODS.items()
    }
    return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("method")
