"""Examples in docstrings, lines that begin with `>>>`, become blocks of code in the reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .+\n?(?:^(?:>>>|\.\.\.) .+\n?|^(?!\n).+\n?)*", re.MULTILINE)


class Examples(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring and ">>> " in obj.docstring.value:
            obj.docstring.value = EXAMPLE.sub(
                lambda match: f"```python\n{match[0].rstrip()}\n```\n", obj.docstring.value
            )
