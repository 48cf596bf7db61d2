"""Wrong input, as a user would give it at the shell: one line that helps, exit code 2, nothing else."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

import headway
from command_line import Answer, called, one_line, shell
from conftest import SMALL, batch_norm_dropout, unequal_clients
from headway.errors import UserError
from headway.runs.files import read_checked
from headway.scenario import Scenario

LITTLE = "--model linear --rounds 3 --clients 20 --steps 2"

WRONG: dict[str, tuple[str, tuple[str, ...]]] = {
    # the method
    "unknown method": ("run fedacgg", ("no method 'fedacgg'", "'fedacg'", "headway methods")),
    "unknown method in a sum": ("run fedprox+agc", ("no method 'agc'", "'acg'")),
    "unknown option": ("run fedacg:lambda=0.9", ("fedacg", "no option 'lambda'", "'lam'", "beta")),
    "lam too large": ("run fedacg:lam=1", ("lam is 1", "0 ≤ lam < 1")),
    "lam negative": ("run fedacg:lam=-0.5", ("lam is -0.5", "0 ≤ lam < 1")),
    "lam is no number": ("run fedacg:lam=high", ("lam is 'high'", "number")),
    "option without value": ("run fedacg:lam", ("'lam' has no value", "lam=0.85")),
    "modifier alone": ("run acg", ("'acg' is not a method by itself", "fedavg+acg")),
    "slot set twice": ("run fedacg+momentum", ("fedacg", "momentum", "both set the server slot")),
    "method twice": ("compare fedavg fedacg fedavg", ("'fedavg'", "twice")),
    "no method": ("run", ("no method given", "headway run fedacg")),
    # settings
    "participation zero": ("run fedavg --participation 0", ("participation is 0", "above 0")),
    "participation above one": ("run fedavg --participation 1.5", ("participation is 1.5", "at most 1")),
    "participation not a number": ("run fedavg --participation nan", ("participation is nan", "finite")),
    "more clients than samples": ("run fedavg --clients 6001", ("clients is 6001", "6000 samples")),
    "unknown partition": ("run fedavg --partition dirichelt:0.3", ("dirichelt:0.3", "'dirichlet'", "iid")),
    "partition without number": ("run fedavg --partition dirichlet", ("dirichlet:ALPHA", "above 0")),
    "unknown data set": ("run fedavg --data fashon", ("no data set 'fashon'", "'fashion'", "mnist")),
    "unknown model": ("run fedavg --model mpl", ("no model 'mpl'", "'mlp'", "cnn")),
    "unknown executor": ("run fedavg --executor batch", ("executor is 'batch'", "'batched'", "serial")),
    "unknown device": ("run fedavg --device gpu", ("device is 'gpu'", "cpu", "cuda")),
    "no CUDA": ("run fedavg --device cuda", ("device is 'cuda'", "no CUDA device", "--device cpu")),
    "stop without target": ("run fedavg --stop-at-target", ("needs a target", "--target")),
    "missing data folder": (f"run fedavg {LITTLE} --data-dir nowhere", ("nowhere", "does not exist", "--data-dir")),
    "missing data file": ("run fedavg --data mnist --data-dir empty", ("train-images-idx3-ubyte", "missing")),
    "text for a number": ("run fedavg --rounds many", ("--rounds", "integer")),
    # the command line
    "unknown flag": ("run fedavg --round 3", ("--round", "--rounds")),
    "flag without value": ("run fedavg --rounds", ("--rounds", "requires an argument")),
    "unknown command": ("rnu fedavg", ("'rnu'", "'run'")),
    "missing folder": ("resume", ("Missing argument", "run")),
    # scenario files
    "no scenario file": ("run fedavg --scenario absent.toml", ("no scenario file", "absent.toml")),
    "no scenario name": ("run fedavg --scenario fashion/dir0.3", ("fashion/dir0.3", "fashion/dir0.3/60x10%")),
    "broken TOML": ("run fedavg --scenario broken.toml", ("broken.toml", "TOML", "line 2")),
    "unknown key": ("run fedavg --scenario key.toml", ("key.toml", "'round'", "'rounds'")),
    "wrong type": ("run fedavg --scenario type.toml", ("type.toml", "rounds is 'three'", "int")),
    "truth value for a number": ("run fedavg --scenario truth.toml", ("truth.toml", "rounds is True", "int")),
    "scenario is no text": ("run fedavg --scenario bytes.toml", ("bytes.toml", "UTF-8")),
    "scenario of endless name": (f"run fedavg --scenario {'long' * 100}", ("no scenario file",)),
    # folders of runs
    "folder already used": (f"run fedavg {LITTLE} --out finished", ("finished", "already used", "headway report")),
    "folder with other files": (f"run fedavg {LITTLE} --out mine", ("mine", "already used", "other files")),
    "resume of no run": ("resume mine", ("mine", "is not a run folder")),
    "resume of nothing": ("resume nowhere", ("nowhere", "is not a run folder")),
    "export of nothing": ("export nowhere", ("nowhere", "is not a run folder")),
    "export of a comparison": ("export compared", ("compared", "comparison")),
    "export to nowhere": ("export finished --out nowhere/model.safetensors", ("nowhere", "cannot be written")),
    "report of nothing": ("report nowhere", ("nowhere", "is not a run folder")),
    "truncated checkpoint": ("resume truncated", ("checkpoint is damaged", ".safetensors", "checksum")),
    "export of a truncated checkpoint": ("export truncated", ("checkpoint is damaged", ".safetensors", "checksum")),
    "missing checkpoint file": ("resume robbed", ("checkpoint is damaged", ".safetensors", "cannot be read")),
    "unreadable manifest": ("resume garbled", ("manifest.json", "cannot be read")),
    "manifest without sense": ("resume senseless", ("manifest.json", "damaged")),
    "unreadable rounds": ("resume unreadable-rounds", ("rounds.jsonl", "line 2", "damaged")),
    "rounds without numbers": ("resume unnumbered-rounds", ("rounds.jsonl", "line 1", "damaged")),
    "summary without sense": ("resume senseless-summary", ("summary.json",)),
    "study without methods": ("resume senseless-study", ("study.json",)),
}


def prepare(folder: Path) -> None:
    """Files and run folders to be wrong with, made without the shell."""
    (folder / "empty").mkdir()
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("not yours\n")
    texts = {"broken": "rounds = 3\nclients = = 20\n", "key": "round = 3\n", "type": 'rounds = "three"\n'}
    for name, text in (texts | {"truth": "rounds = true\n"}).items():
        (folder / f"{name}.toml").write_text(text)
    (folder / "bytes.toml").write_bytes(b"\xff\xfe\x00")

    little = Scenario(model="linear", rounds=3, clients=20, steps=2, executor="serial", device="cpu")
    headway.simulate("fedavg", little, out=folder / "finished")
    headway.compare(["fedavg"], little, out=folder / "compared")

    def damaged(name: str, file: str, content: bytes | None, finished: bool = False) -> None:
        shutil.copytree(folder / "finished", folder / name)
        if not finished:
            (folder / name / "summary.json").unlink()
        (path,) = (folder / name).glob(file)
        path.unlink() if content is None else path.write_bytes(content)

    (server,) = (folder / "finished").glob("checkpoint/server-*")
    manifest = json.loads((folder / "finished/checkpoint/manifest.json").read_text())
    first, *others = (folder / "finished/rounds.jsonl").read_bytes().splitlines(keepends=True)
    damaged("truncated", "checkpoint/server-*", server.read_bytes()[:-100])
    damaged("robbed", "checkpoint/server-*", None)
    damaged("garbled", "checkpoint/manifest.json", b'{"format": 1, "rou')
    damaged("senseless", "checkpoint/manifest.json", json.dumps(manifest | {"round": "three"}).encode())
    damaged("unreadable-rounds", "rounds.jsonl", first + b"\xff\xfe\n" + others[1])
    damaged("unnumbered-rounds", "rounds.jsonl", b"{}\n{}\n{}\n")
    damaged("senseless-summary", "summary.json", b"[]\n", finished=True)
    shutil.copytree(folder / "compared", folder / "senseless-study")
    (folder / "senseless-study" / "study.json").write_text("{}\n")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    prepare(folder)
    return folder


@pytest.fixture(scope="module")
def answers(experiment: Path) -> dict[str, Answer]:
    """What the program says to each wrong input."""
    return {name: called(experiment, command) for name, (command, _) in WRONG.items()}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_input_is_one_helpful_line(name: str, answers: dict[str, Answer]) -> None:
    if name == "no CUDA" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    line = one_line(answers[name])
    for word in WRONG[name][1]:
        assert word in line


@pytest.mark.parametrize("name", ["unknown option", "unknown flag", "broken TOML", "truncated checkpoint"])
def test_a_shell_is_given_the_same_line(name: str, answers: dict[str, Answer], experiment: Path) -> None:
    """One of each place that refuses: the method, the command line, a file, a run folder."""
    lines = one_line(shell(experiment, WRONG[name][0])), one_line(answers[name])
    here, there = (re.sub(r"python -m (pytest\.)?headway", "headway", line) for line in lines)
    assert here == there


def test_a_wrong_input_leaves_nothing_behind(answers: dict[str, Answer], experiment: Path) -> None:
    assert not (experiment / "runs").exists()
    assert [path.name for path in (experiment / "mine").iterdir()] == ["thesis.txt"]


EXPLODING = (
    "--model mlp --rounds 8 --clients 20 --steps 2 --rate 50 --clip 0 --eval-every 50 --executor serial --device cpu "
    "--quiet"
)
"""Without evaluation on the way, which would be the first to see what is not finite."""


def test_a_run_that_diverges_names_the_place_and_keeps_the_last_good_model(tmp_path: Path) -> None:
    line = one_line(called(tmp_path, f"run fedavg {EXPLODING} --out exploded"))
    place = re.search(r"round (\d+), client \d+: the (loss|update) is not a finite number", line)
    assert place, line
    assert "rate (now 50)" in line
    good = int(place[1]) - 1
    assert good >= 1
    manifest = json.loads((tmp_path / "exploded/checkpoint/manifest.json").read_text())
    assert manifest["round"] == good
    assert len((tmp_path / "exploded/rounds.jsonl").read_text().splitlines()) == good
    summary = read_checked(tmp_path / "exploded/summary.json")
    assert summary == {"finished": False, "failure": place.string[place.start() :].strip()}

    exported = called(tmp_path, "export exploded")
    assert exported.returncode == 0, exported.stderr
    model = safetensors.torch.load_file(tmp_path / "exploded/model.safetensors")
    assert model
    assert all(tensor.isfinite().all() for tensor in model.values())


def test_a_method_that_diverges_in_a_comparison_is_named(tmp_path: Path) -> None:
    assert "fedprox" in one_line(called(tmp_path, f"compare fedprox fedavg {EXPLODING} --out exploded"))


def test_what_a_nearly_diverged_run_writes_is_json(tmp_path: Path) -> None:
    """Every number of the model is finite; its norm is not, which JSON cannot hold."""
    called(tmp_path, f"run fedavg {LITTLE} --rate 1e30 --clip 0 --weight-decay 0 --out huge")

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    for line in (tmp_path / "huge/rounds.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)


def test_batch_norm_under_refuse_is_refused() -> None:
    with pytest.raises(UserError, match=r"batch statistics in .* 'refuse'; use .*average or keep-local"):
        headway.simulate("fedavg", SMALL, model=batch_norm_dropout(), buffers="refuse", **unequal_clients())


def test_the_number_of_clients_is_a_setting_in_python_too() -> None:
    """`clients` is also the name of the user's own data; a number must not be taken for it."""
    result = headway.simulate("fedavg", clients=20, rounds=1, steps=1, executor="serial", device="cpu")
    assert result.scenario.clients == 20
