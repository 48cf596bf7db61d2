"""The tests themselves: what several files need is written once, and `make check` finds its fast tests."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent
SHORT = 40
"""Bodies with fewer characters say nothing that two files could say only once."""


def bodies(source: str) -> dict[str, str]:
    """Each function and class at the top of a file that is not a test: its code without docstring and annotations."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.lower().startswith("test"):
            own = node.body[1:] if ast.get_docstring(node) is not None else node.body
            arguments = [one.arg for one in ast.walk(node) if isinstance(one, ast.arg)]
            code = "\n".join(map(ast.unparse, own))
            if len(code) >= SHORT:
                found[node.name] = f"{arguments} {code}"
    return found


def test_no_helper_is_written_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("*.py")):
        for name, code in bodies(path.read_text(encoding="utf-8")).items():
            places[code].append(f"{path.relative_to(TESTS)}::{name}")
    assert [names for names in places.values() if len(names) > 1] == []


def test_a_helper_that_is_written_twice_is_found() -> None:
    one = 'def read(path: Path) -> str:\n    """Say what it holds."""\n    return path.read_text().strip().lower()*2'
    other = one.replace("read(path: Path)", "text_of(path: Any)").replace("Say what it holds.", "Text.")
    assert set(bodies(one).values()) == set(bodies(other).values())
    assert bodies(one) != {} != bodies(one.replace("strip", "rstrip"))
    assert set(bodies(one).values()) != set(bodies(one.replace("strip", "rstrip")).values())
