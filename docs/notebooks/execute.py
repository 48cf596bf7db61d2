"""Run a notebook's code cells one after another in one namespace, without Jupyter.

python docs/notebooks/execute.py docs/notebooks/first_steps.ipynb            # ends with the error of the first bad cell
python docs/notebooks/execute.py docs/notebooks/first_steps.ipynb --keep     # and what the cells print is kept in it
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from pathlib import Path
from typing import Any


def execute(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """The notebook with what its cells print as their outputs."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), namespace)
            lines = printed.getvalue().splitlines(keepends=True)
            outputs = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
            cell = {**cell, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--keep", action="store_true", help="write what the cells print into the notebook")
    given = parser.parse_args()
    made = execute(json.loads(given.notebook.read_text(encoding="utf-8")), given.notebook.name)
    if given.keep:
        given.notebook.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
