"""What `benchmarks/structure.py` counts, on code that is written for it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

STRUCTURE = Path(__file__).resolve().parents[1] / "benchmarks" / "structure.py"

ALIASES = """
from typing import Any

Array = Any
Record = dict[str, Any]
Records = list[Record]
Plain = dict[str, int]
table: Record = {}
"""
USER = """
from package.aliases import Record as Line
from package import aliases

def one(a: Line, b: aliases.Array, c: aliases.Plain) -> aliases.Records:
    return [a]
"""
BRANCHES = """
class Kind:
    def many(self, a, *b, c=0, **d):
        assert a or b and c
        for one in a:
            if one:
                continue
            elif b:
                break
        while a:
            a = [x for y in b if y for x in y if x] if c else None
        try:
            def inside(x):
                return x if x else None
        except ValueError:
            pass
        return d
"""


@pytest.fixture
def structure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    specification = importlib.util.spec_from_file_location("structure", STRUCTURE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "structure", module)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "headway"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", "aliases": ALIASES, "user": USER, "branches": BRANCHES}.items():
        (package / f"{name}.py").write_text(text.replace("package", "headway"))
    return tmp_path


def test_an_alias_of_any_counts_at_each_use(structure: ModuleType, tree: Path) -> None:
    modules = structure.modules(tree)
    aliases, user = modules["headway.aliases"], modules["headway.user"]
    assert aliases.aliases == {"Array": (1, 0), "Record": (1, 1), "Records": (1, 1)}
    assert structure.uses(aliases, aliases.tree) == (4, 3)  # three definitions, the last by an alias, and one use
    assert structure.uses(user, user.tree) == (3, 2)


def test_branches_parameters_and_lines_are_counted(structure: ModuleType, tree: Path) -> None:
    found = {one.name: one for one in structure.functions(structure.modules(tree)["headway.branches"])}
    assert list(found) == ["headway.branches.Kind.many", "headway.branches.Kind.many.inside"]
    many, inside = found.values()
    # 1, assert, or, and, for, if, elif, while, two fors and two ifs of a comprehension, conditional, except
    assert many.complexity == 1 + 1 + 2 + 1 + 2 + 1 + 4 + 1 + 1
    assert (many.parameters, many.lines) == (4, 15)
    assert (inside.complexity, inside.parameters, inside.lines) == (2, 1, 2)


def test_every_kind_of_slot_and_the_network_are_reached(structure: ModuleType) -> None:
    ways = structure.frames(STRUCTURE.parents[1])
    slots = {name.split(":")[0] for name in ways}
    assert slots == {"broadcast", "objective", "local", "server", "wire", "network"}
    assert max(map(len, ways.values())) < 20
