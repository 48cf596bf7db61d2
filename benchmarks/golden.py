"""Golden runs: whether a working tree computes, bit for bit, what an older commit computed.

python benchmarks/golden.py [--old REV | --old-tree PATH] [--new-tree PATH] [--keep FILE] [--threads 1] [--quick]
       [--methods fedavg,scaffold] [--executors serial,batched,pool] [--cases plain,wire]
       [--networks group-norm,batch-norm-dropout] [--precisions fp64,fp32]

Both trees are played here, on the same machine with the same number of threads, each in one process that sees the
tree's `src` first. They are driven through `headway.simulate` alone, with data, networks and first parameters that
this script makes with NumPy, so nothing inside either tree has to keep its name. `--old REV` (default: the commit
where this branch left `main`) is checked out into a temporary git worktree; `--old-tree` takes one that exists.

Every method of the old tree's catalogue is played on six unequal clients for three rounds, with `deterministic`, in the
executors serial, batched and pool, in fp64 and fp32, on a network with GroupNorm and on one with BatchNorm and dropout,
in these cases:

  plain         as it is
  replacement   clients are drawn twice in a round
  stragglers    half of the clients drop out and send what they had done
  over          more clients are invited than are needed
  continued     one stream of batches across the rounds
  keep-local    the batch statistics stay with the clients
  wire          updates are quantised: METHOD+fedpaq, and fedpaq with 4 bits
  skip          on_failure=skip, with clients that do not fail
  failing       on_failure=skip, with a client whose samples overflow
  watching      validation, the global loss, an evaluation every second round, equal weights

Equal means: every field of every round record (but `chain`, those with `seconds` in their name and the words of a
failure), the bytes of every parameter and buffer of the model that is handed over, and those of the checkpoint: server
state and client states. A run that the old tree refuses must be refused by the new one. A run that only the new tree
has is listed and is not a fault.

`--quick` plays every method plainly in serial and batched, and one further case of each method. `--keep FILE` holds
what the old tree gave, so that the next comparison plays only the new one; it is believed only for the same commit (for
the same content of its `src`), threads, versions of Python, torch, NumPy and safetensors, machine, and version of the
part of this script that plays.

No stored bits are compared across machines. Compiled executors are compared by `make soak`, those on a GPU by
`benchmarks/agreement.py`. Exit code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

PARTS = ("method", "executor", "case", "network", "precision")
"""What a run is named after, in this order."""
ROUNDS = 3
SIZES = (3, 17, 8, 24, 5, 11)
FEATURES, CLASSES = 6, 3
EXECUTORS = ("serial", "batched", "pool")
PRECISIONS = ("fp64", "fp32")
NETWORKS = ("group-norm", "batch-norm-dropout")
SETTINGS = {"rounds": ROUNDS, "participation": 0.5, "epochs": 2, "batch_size": 4, "rate": 0.1, "smoothing": 0.5}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "replacement": {"sampling": "replacement", "participation": 0.9},
    "stragglers": {"dropout": 0.5, "stragglers": "partial", "participation": 1.0},
    "over": {"over_selection": 0.6, "dropout": 0.2},
    "continued": {"batches": "continued", "participation": 1.0},
    "keep-local": {"buffers": "keep-local"},
    "wire": {},
    "skip": {"on_failure": "skip"},
    "failing": {"on_failure": "skip", "participation": 1.0},
    "watching": {"validation": 0.3, "global_loss": True, "eval_every": 2, "weights": "uniform"},
}
"""Settings of each case; `wire` also changes the method, and `failing` the samples of a client."""


# ── one tree, in a separate process: nothing before `play` imports headway ────────────────────────────────────────────


def unequal_clients(failing: bool, precision: str) -> dict[str, Any]:
    """Six clients with their own mixes of classes, and a test set; with `failing`, the fourth overflows."""
    import numpy as np

    draw, kind = np.random.default_rng(2024), np.float64 if precision == "fp64" else np.float32
    centres = draw.normal(size=(CLASSES, FEATURES))

    def samples(count: int, mix: Any) -> tuple[Any, Any]:
        y = draw.choice(CLASSES, count, p=mix)
        return (centres[y] + 0.5 * draw.normal(size=(count, FEATURES))).astype(kind), y

    clients = [samples(count, draw.dirichlet([1.0] * CLASSES)) for count in SIZES]
    test = samples(40, [1 / CLASSES] * CLASSES)
    if failing:
        x, y = clients[3]
        clients[3] = np.sign(x) * np.finfo(kind).max, y
    return {"clients": clients, "test": test}


def network(name: str) -> Any:
    """A network in two stages, with parameters that NumPy has drawn."""
    import numpy as np
    import torch
    from torch import nn

    class InStages(nn.Module):
        def __init__(self, *stages: nn.Module) -> None:
            super().__init__()
            self.stages = nn.ModuleList(stages)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for stage in self.stages:
                x = stage(x)
            return x

    norms = {
        "group-norm": [nn.GroupNorm(2, 8), nn.ReLU()],
        "batch-norm-dropout": [nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4)],
    }
    module = InStages(nn.Sequential(nn.Linear(FEATURES, 8), *norms[name]), nn.Linear(8, CLASSES))
    draw = np.random.default_rng(7)
    with torch.no_grad():
        for parameter in module.parameters():
            values = draw.uniform(-0.4, 0.4, size=tuple(parameter.shape)) + (parameter.ndim == 1)
            parameter.copy_(torch.from_numpy(values))
    return module


class Silent:
    """An observer that says nothing of a run."""

    def begins(self, *about: Any) -> None:
        pass

    def round(self, *about: Any) -> None:
        pass

    def tell(self, *about: Any) -> None:
        pass


def digest(tensor: Any) -> str:
    """Type, shape and bytes of a tensor as a short hash."""
    content = tensor.detach().cpu().contiguous().numpy()
    head = f"{content.dtype.str}{content.shape}"
    return hashlib.sha256(head.encode() + content.tobytes()).hexdigest()[:16]


def checkpoint_digests(folder: Path) -> dict[str, str]:
    """Every tensor of the server, and the newest row of every client, as its files have them.

    The file of the clients has two stamps (round, checksum) and then two rows for each of them.
    """
    import numpy as np
    import safetensors.numpy

    manifest = json.loads((folder / "manifest.json").read_text())
    found = {}
    for name, array in safetensors.numpy.load((folder / manifest["server"]).read_bytes()).items():
        head = f"{array.dtype.str}{array.shape}"
        found[f"server/{name}"] = hashlib.sha256(head.encode() + array.tobytes()).hexdigest()[:16]
    if not manifest["clients"]:
        return found
    sizes = [np.dtype(kind).itemsize * int(np.prod(shape)) for _, kind, shape in manifest["clients"]]
    content, row = (folder / "clients.rows").read_bytes(), sum(sizes)
    population = len(content) // (2 * (16 + row))
    stamps = np.frombuffer(content[: 32 * population], [("round", "<i8"), ("checksum", "<u8")]).reshape(-1, 2)
    for client, rounds in enumerate(stamps["round"]):
        found[f"client {client}/round"] = str(rounds.max())
        at = 32 * population + (2 * client + int(rounds.argmax())) * row
        for (name, _, _), size in zip(manifest["clients"], sizes, strict=True):
            found[f"client {client}/{name}"] = hashlib.sha256(content[at : at + size]).hexdigest()[:16]
            at += size
    return found


def repeatable(record: dict[str, Any]) -> dict[str, Any]:
    """A round record without what depends on the clock, and without the words of a failure."""
    record = {name: value for name, value in record.items() if "seconds" not in name and name != "chain"}
    for failure in record.get("failures", []):
        failure.pop("cause", None)
    return record


def played(run: dict[str, str], folder: Path) -> dict[str, Any]:
    """What one run gave: its records without the clock, and digests; or the error that ended it."""
    import headway

    spelled = run["method"]
    if run["case"] == "wire":
        spelled = "fedpaq:bits=4" if spelled == "fedpaq" else f"{spelled}+fedpaq"
    settings = SETTINGS | CASES[run["case"]]
    try:
        result = headway.simulate(
            spelled,
            model=network(run["network"]),
            **unequal_clients(run["case"] == "failing", run["precision"]),
            **settings,
            device="cpu",
            precision=run["precision"],
            executor=run["executor"],
            deterministic=True,
            checkpoint_every=2,
            out=folder,
            observer=Silent(),
        )
    except Exception as fault:  # a mistake in one tree is a difference of this run, and the others are still played
        return {"refused": type(fault).__name__, "words": " ".join(str(fault).split())}
    return {
        "executor": result.executor,
        "records": [repeatable(json.loads(json.dumps(record))) for record in result.records],
        "model": {name: digest(tensor) for name, tensor in result.model.state_dict().items()},
        "checkpoint": checkpoint_digests(folder / "checkpoint"),
    }


def key(run: dict[str, str]) -> str:
    return ", ".join(run[part] for part in PARTS)


def wanted(plan: dict[str, Any], methods: list[str]) -> Iterator[dict[str, str]]:
    """The runs of a plan. A quick one takes one network, precision and further case for each method, in turn."""
    parts = [plan[name] for name in ("cases", "networks", "precisions")]
    further = [case for case in plan["cases"] if case != "plain"] or ["plain"]
    for number, method in enumerate(name for name in methods if not plan["methods"] or name in plan["methods"]):
        if plan["quick"]:
            cases = {*plan["cases"]} & {"plain", further[number % len(further)]}
            nets, kinds = plan["networks"], plan["precisions"]
            parts = [sorted(cases), [nets[number % len(nets)]], [kinds[number // len(nets) % len(kinds)]]]
        for values in itertools.product([method], plan["executors"], *parts):
            yield dict(zip(PARTS, values, strict=True))


def play(plan: dict[str, Any], out: Path) -> None:
    """Play what is wanted of the tree on the path, and write one JSON object: the results by the runs' names."""
    import torch

    import headway
    from headway.methods.catalogue import METHODS

    home = Path(headway.__file__).resolve()
    if not home.is_relative_to(Path(plan["tree"]).resolve()):
        sys.exit(f"headway is imported from {home}, not from {plan['tree']}")
    torch.set_num_threads(plan["threads"])
    warnings.simplefilter("ignore")
    runs = [run for run in wanted(plan, list(METHODS)) if key(run) not in plan["known"]]
    results = {}
    with tempfile.TemporaryDirectory() as place:
        for number, run in enumerate(runs):
            if number % 50 == 0:
                print(f"{plan['name']}: {number} of {len(runs)} runs", file=sys.stderr, flush=True)
            results[key(run)] = played(run, Path(place) / str(number))
    out.write_text(json.dumps({"methods": list(METHODS), "results": results}))


# ── both trees ───────────────────────────────────────────────────────────────────────────────────────────────────────


RENAMED_FIELDS: dict[str, str] = {}
"""Fields of a round record that the new tree calls otherwise: {name in the old tree: name in the new one}."""
ADDED_FIELDS = frozenset(
    (
        *("client_scores", "client_metric", "clients_judged"),
        *("client_mean", "client_std", "client_worst", "client_quantiles"),
        "client_steps",  # of clients that were cut short, for a replay of who attended
        *("update_norm_mean", "update_norm_std", "diversity", "drift", "cosine_momentum", "clipped_share"),
        "accuracy_by_class",
    )
)
"""Fields of a round record that an old tree may lack: they are compared where it has them."""
REPLACED_FIELDS = {"client_accuracy_std": "client_std", "client_accuracy_low": "client_worst"}
"""Fields of an old tree in whose place the new one may have another number: what is measured for the proxy."""
RENAMED_TENSORS: dict[str, str] = {}
"""Tensors of a checkpoint that the new tree calls otherwise: {name in the old tree: name in the new one}."""


def renamed(tensor: str) -> str:
    """The new tree's name of a tensor in a checkpoint of the old one: slots may have other names by now, too."""
    from headway.methods.renamed import RENAMED  # here, an old tree, which plays this script too, lacks the table

    return "/".join(RENAMED.get(part, part) for part in RENAMED_TENSORS.get(tensor, tensor).split("/"))


def results_of(tree: Path, name: str, plan: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Results of a tree by the runs' names: those known, and the others played in a separate process."""
    with tempfile.TemporaryDirectory() as place:
        given, out = Path(place) / "plan.json", Path(place) / "results.json"
        given.write_text(json.dumps({**plan, "tree": str(tree), "name": name, "known": sorted(known)}))
        environment = os.environ | {
            "PYTHONPATH": str(tree / "src"),
            "OMP_NUM_THREADS": str(plan["threads"]),
            "HEADWAY_CACHE": place,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, str(Path(__file__).resolve()), "--play", str(given), str(out)]
        if subprocess.run(command, env=environment, cwd=place, stdout=subprocess.DEVNULL).returncode:
            sys.exit(f"the {name} tree could not be played")
        found = json.loads(out.read_text())
    names = [key(run) for run in wanted(plan, found["methods"])]
    everything = known | found["results"]
    known |= found["results"]
    return {name: everything[name] for name in names}


def _replaced(name: str, record: dict[str, Any]) -> bool:
    """Whether a new record has another number in the place of an old field."""
    return REPLACED_FIELDS.get(name) in record


def first_difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Where two results differ first, in words; None where they are equal."""
    if "refused" in old or "refused" in new:
        words = [one["words"] if "refused" in one else "played" for one in (old, new)]
        return None if old.get("refused") == new.get("refused") else f"old: {words[0]}; new: {words[1]}"
    if old["executor"] != new["executor"]:
        return f"executor {old['executor']} / {new['executor']}"
    for number, (one, other) in enumerate(zip(old["records"], new["records"], strict=False), 1):
        before = {RENAMED_FIELDS.get(name, name): value for name, value in one.items()}
        before = {name: value for name, value in before.items() if name in other or not _replaced(name, other)}
        for name in sorted(before.keys() | (other.keys() - (ADDED_FIELDS - before.keys()))):
            values = [json.dumps(record[name]) if name in record else "missing" for record in (before, other)]
            if values[0] != values[1]:
                return f"round {number}, {name}: {values[0]} / {values[1]}"
    if len(old["records"]) != len(new["records"]):
        return f"rounds: {len(old['records'])} / {len(new['records'])}"
    for what in ("model", "checkpoint"):
        before = {renamed(name): value for name, value in old[what].items()}
        for name in sorted(before.keys() | new[what].keys()):
            if before.get(name) != new[what].get(name):
                missing = [side for side, one in (("old", before), ("new", new[what])) if name not in one]
                return f"{what}, {name}: " + (f"missing in the {missing[0]} tree" if missing else "other bytes")
    return None


def compared(old: dict[str, Any], new: dict[str, Any]) -> tuple[list[str], bool]:
    """The lines of the table, and whether every run of the old tree is in the new one, bit for bit."""
    differing = dict.fromkeys(old.keys() - new.keys(), "missing in the new tree")
    for name in old.keys() & new.keys():
        words = first_difference(old[name], new[name])
        if words is not None:
            differing[name] = words
    refused = [name for name in old if "refused" in old[name] and name not in differing]
    lines = [f"DIFFERENT  {name}: {differing[name]}" for name in old if name in differing]
    lines += [f"only in the new tree: {name}" for name in new if name not in old]
    parts = [name.split(", ") for name in old]
    for part, title in enumerate(PARTS):
        every = Counter(one[part] for one in parts)
        wrong = Counter(name.split(", ")[part] for name in differing)
        lines += [f"{title:10} {one:22} {count:5} runs {wrong[one]:5} different" for one, count in every.items()]
    kinds = Counter(f"{old[name]['refused']}: {old[name]['words']}" for name in refused)
    lines += [f"refused by both, {count} runs: {words}" for words, count in kinds.items()]
    equal = len(old) - len(differing) - len(refused)
    lines.append(f"{len(old)} runs: {equal} equal, {len(refused)} refused by both, {len(differing)} different")
    return lines, bool(old) and not differing


# ── the old commit and what is kept of it ────────────────────────────────────────────────────────────────────────────


def git(*words: str, place: Path = ROOT) -> str:
    done = subprocess.run(["git", "-C", str(place), *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A git worktree of a commit in a temporary folder."""
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "old"
        git("worktree", "add", "--detach", str(tree), revision)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


def machine() -> str:
    """Processor, cores and system."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor()
    return f"{model}, {os.cpu_count()} cores, {platform.platform()}, {platform.node()}"


def identity(tree: Path, threads: int) -> dict[str, Any] | None:
    """On what the bits of a tree depend; None where its `src` has changes that no commit holds."""
    if git("status", "--porcelain", "--", "src", place=tree):
        return None
    playing = Path(__file__).read_text().split('"""', 2)[2].partition("# ── both trees")[0]
    return {
        "source": git("rev-parse", "HEAD:src", place=tree),
        "threads": threads,
        **{name: importlib.metadata.version(name) for name in ("torch", "numpy", "safetensors")},
        "python": platform.python_version(),
        "machine": machine(),
        "script": hashlib.sha256(playing.encode()).hexdigest(),
    }


def remembered(file: Path | None, about: dict[str, Any] | None) -> dict[str, Any]:
    """What a file keeps of just this tree, threads, versions and machine; nothing where it is of others."""
    if file is None or about is None or not file.is_file():
        return {}
    kept = json.loads(file.read_text())
    return dict(kept["results"]) if kept["about"] == about else {}


def old_results(tree: Path, plan: dict[str, Any], file: Path | None) -> dict[str, Any]:
    about = None if file is None else identity(tree, plan["threads"])
    if file is not None and about is None:
        print(f"{tree} has changes that are not committed: nothing of it is kept", file=sys.stderr)
    known = remembered(file, about)
    results = results_of(tree, "old", plan, known)
    if file is not None and about is not None:
        file.write_text(json.dumps({"about": about, "results": known}))
    return results


def parsed() -> argparse.Namespace:
    def several(text: str) -> list[str]:
        return [word for word in text.split(",") if word]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", help="a commit; default: where this branch left main")
    parser.add_argument("--old-tree", type=Path)
    parser.add_argument("--new-tree", type=Path, default=ROOT)
    parser.add_argument("--methods", type=several, default=[])
    choices = {"executors": EXECUTORS, "cases": tuple(CASES), "networks": NETWORKS, "precisions": PRECISIONS}
    for name, known in choices.items():
        parser.add_argument(f"--{name}", type=several, help=", ".join(known))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    for name, known in choices.items():
        given = getattr(arguments, name)
        for unknown in set(given or ()) - set(known):
            parser.error(f"--{name}: '{unknown}' is not among {', '.join(known)}")
        plain = ("serial", "batched") if arguments.quick and name == "executors" else known
        setattr(arguments, name, given or list(plain))
    if arguments.old and arguments.old_tree:
        parser.error("--old and --old-tree are both given; give one of them")
    return arguments


def main() -> None:
    if sys.argv[1:2] == ["--play"]:
        play(json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3]))
        return
    arguments = parsed()
    plan = {
        name: getattr(arguments, name)
        for name in ("methods", "executors", "cases", "networks", "precisions", "quick", "threads")
    }
    if arguments.old_tree:
        old = old_results(arguments.old_tree.resolve(), plan, arguments.keep)
    else:
        with checked_out(arguments.old or git("merge-base", "main", "HEAD")) as tree:
            old = old_results(tree, plan, arguments.keep)
    new = results_of(arguments.new_tree.resolve(), "new", plan, {})
    lines, equal = compared(old, new)
    print("\n".join(lines))
    sys.exit(not equal)


if __name__ == "__main__":
    main()
