"""How a tree of Headway is built, in numbers: calls on the way into a user's code, sizes, complexity, `Any`.

python benchmarks/structure.py [--tree PATH] [--against PATH] [--chains] [--json | --markdown]

`--tree` is the tree to measure (default: this one), `--against` another that is shown beside it, on the left. A table
says goals beside the numbers; no goal is enforced. `--markdown` writes the table for a page.

*Frames*, in eager `serial`: a run of two rounds with slots and a network of the user's own, played in a process that
sees the tree's `src` first. Each hook, and the network's `forward`, walks the stack it was called from. Counted are the
frames whose code is in a file of the package, strictly between the function that is one round (`run_round` in
headway/engine, or `play` in headway/engine/round.py of earlier trees) and the user's function: neither of the two
counts, and frames of torch and of the standard library do not. A generator expression or comprehension of the package
that has a frame counts as one, as it does in a traceback (from Python 3.12 on, list comprehensions have none). The
number is the largest of all calls within the rounds; calls outside of rounds do not count. `--chains` prints the
functions.

*Sizes*: lines of a function from `def` to its end, docstring included, decorators not; lines of a file. Parameters are
all that a signature names, but for self and cls.

*Complexity* begins at 1 and counts each if, elif, for, while, except, assert, conditional expression, `case` of a
match, `for` and `if` of a comprehension, and each `and` and `or`. A nested function counts for itself and not for the
one around it, a lambda for the function it stands in. Functions are all `def`s of the package, methods included.

*Any*: each time the name is used, import statements aside, and each use of an alias counts what its definition has:
after `Array = Any`, every `Array` is one. `dict[str, Any]` is counted in the same way, so after
`Record = dict[str, Any]` every `Record` is one more. Aliases are found where they are defined, at the top of a module,
and in every module of the package that imports them or reaches them as `module.Alias`.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROUND_FUNCTIONS = (("run_round", "engine/"), ("play", "engine/round.py"))
"""Names of the function that is one round, newest first, and where in the package such a function may be."""
SLOT_GOAL, FORWARD_GOAL = 4, 8
COMPLEX = 10
MANY = 6

# ── frames, in a separate process ─────────────────────────────────────────────────────────────────────────────────────

SEEN: dict[str, list[str]] = {}
"""The longest way into each hook so far: the functions between the round and it."""


def note(hook: str) -> None:
    """Remember the way from the round into the caller of this function, where it is the longest so far."""
    import headway

    home = str(Path(headway.__file__).resolve().parent)
    way: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        inside = os.path.realpath(code.co_filename).removeprefix(home + os.sep)
        if any(code.co_name == name and inside.startswith(place) for name, place in ROUND_FUNCTIONS):
            if hook not in SEEN or len(way) > len(SEEN[hook]):
                SEEN[hook] = way[::-1]
            return
        if not os.path.isabs(inside):
            way.append(f"{inside}:{code.co_qualname}")
        frame = frame.f_back


class Sending:
    def message(self, model: Any, server: Any) -> Any:
        note("broadcast: message")
        return {"model": model}


class Minimising:
    def value(self, w: Any, output: Any, memory: Any, step: Any) -> Any:
        note("objective: value")
        return step.batch.mean(step.losses(output.logits))

    def begin(self, received: Any, kept: Any, client: Any) -> Any:
        note("objective: begin")
        return {}

    def finish(self, end: Any, memory: Any, kept: Any) -> Any:
        note("objective: finish")
        return {}, kept


class Pulling:
    adds = True

    def value(self, w: Any, output: Any, memory: Any, step: Any) -> Any:
        note("objective: value of an addition")
        return 0.005 * step.moved(w).square()

    def slope(self, w: Any, memory: Any, step: Any) -> Any:
        note("objective: slope")
        return step.moved(w) * 0.01


class Stepping:
    def client_state(self, model: Any) -> Any:
        note("local: client_state")
        return {"last": model.zeros()}

    def begin(self, received: Any, kept: Any, client: Any) -> Any:
        note("local: begin")
        return {"last": kept["last"]}

    def direction(self, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
        note("local: direction")
        return gradient + 0.0 * memory["last"], memory

    def finish(self, end: Any, memory: Any, kept: Any) -> Any:
        note("local: finish")
        return {}, {"last": end.delta}

    def measures(self, memory: Any, end: Any) -> Any:
        note("local: measures")
        return {"moved": end.delta.norm()}


class Serving:
    needs_each = True

    def server_state(self, model: Any, population: int) -> Any:
        note("server: server_state")
        return {"last": model.zeros()}

    def derive(self, *given: Any) -> Any:
        note("server: derive")
        return {}

    def prepare(self, uploads: Any, state: Any) -> Any:
        note("server: prepare")
        return uploads, state

    def update(self, model: Any, uploads: Any, state: Any) -> Any:
        note("server: update")
        return model + uploads.mean["delta"], {"last": uploads.mean["delta"]}

    def measures(self, state: Any) -> Any:
        note("server: measures")
        return {"stepped": state["last"].norm()}


@dataclass(frozen=True)
class Code:
    way: str

    def encode(self, vector: Any, key: Any) -> Any:
        note(f"wire: encode {self.way}")
        return {"half": vector * 0.5}

    def decode(self, payload: Any, like: Any) -> Any:
        note(f"wire: decode {self.way}")
        return payload["half"] * 2.0


def network() -> Any:
    from torch import Tensor, nn

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            note("network: forward")
            logits: Tensor = self.layer(x)
            return logits

    return Own()


def played(tree: Path, out: Path) -> None:
    """Play a tree with slots of the user's own, and write the longest way into each hook."""
    import numpy as np

    import headway as hw

    if not Path(hw.__file__).resolve().is_relative_to(tree):
        sys.exit(f"headway is imported from {hw.__file__}, not from {tree}")
    draw = np.random.default_rng(1)
    clients = [(draw.normal(size=(size, 4)), draw.integers(0, 3, size)) for size in (5, 8, 6)]
    method = hw.Method(
        broadcast=Sending(),
        objective=(Minimising(), Pulling()),
        local=Stepping(),
        server=Serving(),
        wire=hw.Wire(up=Code("up"), down=Code("down")),
        name="own",
    )
    settings = {"rounds": 2, "participation": 1.0, "epochs": 1, "batch_size": 4, "device": "cpu"}
    hw.simulate(method, model=network(), clients=clients, test=clients[0], executor="serial", **settings)
    out.write_text(json.dumps(SEEN))


def frames(tree: Path) -> dict[str, list[str]]:
    """The longest way from the round into each hook, by the hook's name."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "frames.json"
        command = [sys.executable, str(Path(__file__).resolve()), "--play", str(tree), str(out)]
        environment = os.environ | {"PYTHONPATH": str(tree / "src"), "HEADWAY_CACHE": place}
        done = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{tree} could not be played: {done.stderr.strip()}")
        return dict(json.loads(out.read_text()))


# ── the source ───────────────────────────────────────────────────────────────────────────────────────────────────────

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Function:
    name: str
    lines: int
    parameters: int
    complexity: int


@dataclass
class Module:
    """A file of the package, and how often each alias of Any that is known in it stands for Any and dict[str, Any]."""

    name: str
    tree: ast.Module
    lines: int
    aliases: dict[str, tuple[int, int]] = field(default_factory=dict)


def complexity(node: ast.AST) -> int:
    """1, and one more for each branch of a function's own code."""
    return 1 + sum(_branches(child) for child in ast.iter_child_nodes(node))


_ONE = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.IfExp, ast.match_case)


def _branches(node: ast.AST) -> int:
    if isinstance(node, FunctionNode):
        return 0
    own = int(isinstance(node, _ONE))
    if isinstance(node, ast.comprehension):
        own = 1 + len(node.ifs)
    if isinstance(node, ast.BoolOp):
        own = len(node.values) - 1
    return own + sum(_branches(child) for child in ast.iter_child_nodes(node))


def parameters(node: FunctionNode) -> int:
    """How many a signature names, but for self and cls."""
    given = node.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if one]
    return len(names) - int(bool(names) and names[0] in ("self", "cls"))


def functions(module: Module) -> Iterator[Function]:
    def inside(node: ast.AST, place: str) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            name = f"{place}.{child.name}" if isinstance(child, FunctionNode | ast.ClassDef) else place
            if isinstance(child, FunctionNode):
                size = (child.end_lineno or child.lineno) - child.lineno + 1
                yield Function(name, size, parameters(child), complexity(child))
            yield from inside(child, name)

    yield from inside(module.tree, module.name)


def modules(tree: Path) -> dict[str, Module]:
    """Every module of the package by its dotted name, with the aliases of Any that it knows."""
    home = tree / "src"
    found = {}
    for path in sorted((home / "headway").rglob("*.py")):
        name = ".".join(path.relative_to(home).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, ast.parse(text), len(text.splitlines()))
    while _aliases_grew(found):  # an alias of an alias is one too
        pass
    return found


def _aliases_grew(found: dict[str, Module]) -> bool:
    before = {name: dict(module.aliases) for name, module in found.items()}
    for module in found.values():
        for node in module.tree.body:
            target = _alias(node)
            if target is not None:
                name, value = target
                counted = uses(module, value)
                if counted[0]:
                    module.aliases[name] = counted
        for imported in ast.walk(module.tree):
            if isinstance(imported, ast.ImportFrom | ast.Import):
                _import(module, imported, found)
    return before != {name: module.aliases for name, module in found.items()}


def _alias(node: ast.stmt) -> tuple[str, ast.expr] | None:
    """Name and value of a type's second name; a value that is called, or a literal, is none."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None and "TypeAlias" in ast.dump(node.annotation):
        target, value = node.target, node.value
    elif type(node).__name__ == "TypeAlias":  # `type Record = …`, from Python 3.12 on
        target, value = node.name, node.value  # type: ignore[attr-defined]
    else:
        return None
    kinds = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp)
    return (target.id, value) if isinstance(target, ast.Name) and isinstance(value, kinds) else None


def _import(module: Module, node: ast.ImportFrom | ast.Import, found: dict[str, Module]) -> None:
    """Take over the aliases of what is imported: by their own names, and as `module.Alias`."""
    for one in node.names:
        known = one.asname or one.name
        if isinstance(node, ast.ImportFrom):
            source = found.get(node.module or "")
            if source is not None and one.name in source.aliases:
                module.aliases[known] = source.aliases[one.name]
            whole = found.get(f"{node.module}.{one.name}")
        else:
            whole = found.get(one.name)
        for name, counted in whole.aliases.items() if whole is not None else ():
            if "." not in name:
                module.aliases[f"{known}.{name}"] = counted


def uses(module: Module, node: ast.AST) -> tuple[int, int]:
    """How often Any, and how often dict[str, Any], stands in some code, aliases included."""
    anys = dicts = 0
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            words = child.id
        elif isinstance(child, ast.Attribute):
            words = ast.unparse(child)
        else:
            if isinstance(child, ast.Subscript):
                dicts += ast.unparse(child) in ("dict[str, Any]", "dict[str, typing.Any]")
            continue
        more = (1, 0) if words in ("Any", "typing.Any") else module.aliases.get(words, (0, 0))
        anys, dicts = anys + more[0], dicts + more[1]
    return anys, dicts


def measured(tree: Path) -> dict[str, Any]:
    """Every measure of a tree, with names where one is the largest."""
    every = modules(tree)
    defined = [function for module in every.values() for function in functions(module)]
    ways = frames(tree)
    lines = sum(module.lines for module in every.values())
    counted = [uses(module, module.tree) for module in every.values()]
    written = [uses(Module(module.name, module.tree, module.lines), module.tree) for module in every.values()]
    longest = max(defined, key=lambda one: one.lines)
    file = max(every.values(), key=lambda one: one.lines)
    many = [one for one in defined if one.parameters > MANY]
    hard = [one for one in defined if one.complexity > COMPLEX]
    worst = max(defined, key=lambda one: one.complexity)
    most = max(defined, key=lambda one: one.parameters)
    return {
        **{f"frames to {hook}": len(way) for hook, way in sorted(ways.items())},
        "longest function, lines": [longest.lines, longest.name],
        "functions above 60 lines": sum(one.lines > 60 for one in defined),
        "longest file, lines": [file.lines, file.name],
        "files above 400 lines": sum(module.lines > 400 for module in every.values()),
        f"functions with more than {MANY} parameters": len(many),
        "most parameters": [most.parameters, most.name],
        f"complexity above {COMPLEX}, % of functions": round(100 * len(hard) / len(defined), 2),
        f"complexity above {COMPLEX}, functions": len(hard),
        "complexity above 15, functions": sum(one.complexity > 15 for one in defined),
        "largest complexity": [worst.complexity, worst.name],
        "Any per thousand lines": round(1000 * sum(anys for anys, _ in counted) / lines, 1),
        "Any": sum(anys for anys, _ in counted),
        "Any, without aliases": sum(anys for anys, _ in written),
        "dict[str, Any]": sum(dicts for _, dicts in counted),
        "dict[str, Any], without aliases": sum(dicts for _, dicts in written),
        "functions": len(defined),
        "files": len(every),
        "lines": lines,
    }


GOALS = {
    "frames to network: forward": f"≤ {FORWARD_GOAL}",
    "functions above 60 lines": "0",
    "files above 400 lines": "0",
    f"complexity above {COMPLEX}, % of functions": "≤ 2",
    "complexity above 15, functions": "0",
    "Any per thousand lines": "≤ 12",
    "dict[str, Any]": "≤ 20",
}


def rows_of(columns: list[tuple[str, dict[str, Any]]]) -> list[list[str]]:
    """The heading, and a row for each measure with its goal."""

    def words(value: Any) -> str:
        if isinstance(value, list):
            number, name = value
            return f"{number} ({name.removeprefix('headway.')})"
        return "—" if value is None else str(value)

    names = list(dict.fromkeys(name for _, values in columns for name in values))
    names.sort(key=lambda name: not name.startswith("frames"))
    rows = [["", *(title for title, _ in columns), "goal"]]
    for name in names:
        goal = GOALS.get(name, f"≤ {SLOT_GOAL}" if name.startswith("frames") else "")
        rows.append([name, *(words(values.get(name)) for _, values in columns), goal])
    return rows


def table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def markdown(rows: list[list[str]]) -> Iterator[str]:
    heading, *others = rows
    for row in (heading, ["---"] * len(heading), *others):
        yield f"| {' | '.join(row)} |"


def main() -> None:
    if sys.argv[1:2] == ["--play"]:
        played(Path(sys.argv[2]).resolve(), Path(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--chains", action="store_true", help="print the functions on each way too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    trees = {"before": arguments.against, "after" if arguments.against else "tree": arguments.tree}
    found = [(title, measured(tree.resolve())) for title, tree in trees.items() if tree is not None]
    if arguments.json:
        print(json.dumps(dict(found), indent=2, ensure_ascii=False))
        return
    print("\n".join((markdown if arguments.markdown else table)(rows_of(found))))
    for title, tree in trees.items() if arguments.chains else ():
        for hook, way in sorted(frames(tree.resolve()).items()) if tree is not None else ():
            print(f"\n{title}, {hook}:", *way, sep="\n  ")


if __name__ == "__main__":
    main()
