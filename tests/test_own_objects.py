"""Data, models and scenarios of the user's own: what is expected works, what cannot work is refused in one line."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import headway
from conftest import refused
from headway.cli.main import app
from headway.data.sources import load, present
from headway.engine.building import build
from headway.errors import UserError
from headway.methods.spelling import method
from headway.scenario import Scenario, scenario
from source_files import refused_source

USERS = 6
PAIR = (torch.zeros(4, 2), torch.tensor([0, 1, 2, 1]))
NUMBERS = (PAIR[0], torch.tensor([0.5, 1.5, -2.0, 1.0]))


class Answering(nn.Module):
    """A linear network whose answer is changed."""

    def __init__(self, features: int, outputs: int, change: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.change = nn.Linear(features, outputs), change

    def forward(self, x: torch.Tensor) -> Any:
        return self.change(self.inner(x))


# ── a split that knows its clients ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with an npz file of 120 samples and 6 users, and a split into 3 clients."""
    draw = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 40)
    x = draw.normal(size=(120, 5)) + y[:, None]
    users = np.arange(120) % USERS
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, users_train=users, x_test=x[::4], y_test=y[::4])
    (tmp_path / "rows.json").write_text(json.dumps([[0, 1], [2], [3, 4, 5]]))
    return tmp_path


def population(chosen: Scenario) -> int:
    return build(chosen, method("fedacg")).population


class TestAllClientsOfASplit:
    def test_without_a_number_all_users_take_part(self, own: Path) -> None:
        chosen: dict[str, Any] = {"data": f"npz:{own}/own.npz", "partition": "natural", "model": "linear"}
        run = headway.simulate("fedacg", rounds=1, device="cpu", **chosen)
        assert run.scenario.clients == USERS
        assert population(scenario(**chosen, device="cpu", clients=2)) == 2, "the first two"

    def test_without_a_number_all_lists_of_a_file_take_part(self, own: Path) -> None:
        chosen = scenario(data=f"npz:{own}/own.npz", partition=f"file:{own}/rows.json", model="linear", device="cpu")
        assert population(chosen) == 3

    @pytest.mark.parametrize(
        ("written", "given", "clients"),
        [
            ("", {"partition": "natural"}, 0),
            ('partition = "natural"', {}, 0),
            ('partition = "natural"', {"partition": "iid"}, 60),
            ('partition = "natural"\nclients = 60', {}, 60),
            ('partition = "natural"', {"clients": 60}, 60),
            ("clients = 60", {"partition": "natural"}, 60),
            ("", {}, 60),
        ],
    )
    def test_a_number_that_is_given_stays(
        self, tmp_path: Path, written: str, given: dict[str, Any], clients: int
    ) -> None:
        (tmp_path / "mine.toml").write_text(written)
        assert scenario(tmp_path / "mine.toml", **given).clients == clients

    def test_other_splits_and_names_keep_their_number(self) -> None:
        assert scenario(partition="iid").clients == 60
        assert scenario("synthetic:1,1/natural/20x5").clients == 20
        assert scenario("fashion/dir0.3/50x10%", partition="natural").clients == 50

    def test_more_clients_than_users_are_refused_with_how_to_take_all(self, own: Path) -> None:
        chosen = scenario(data=f"npz:{own}/own.npz", partition="natural", clients=60, model="linear", device="cpu")
        refused(lambda: build(chosen, method("fedacg")), "the data has 6 users", "--clients 6 or fewer (0 takes all)")


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Refuses, as the system does to who is not root, to look into a folder or to open a file."""

    def forbidding(locked: Path) -> None:
        for name in ("stat", "open"):
            whole = getattr(Path, name)

            def guarded(path: Path, *rest: Any, whole: Any = whole, name: str = name, **more: Any) -> Any:
                if locked in path.parents or (name == "open" and path == locked):
                    raise PermissionError(errno.EACCES, "Permission denied", str(path))
                return whole(path, *rest, **more)

            monkeypatch.setattr(Path, name, guarded)

    return forbidding


class TestFilesThatCannotBeRead:
    def test_a_data_folder(self, tmp_path: Path, forbid: Callable[[Path], None]) -> None:
        (tmp_path / "sets").mkdir()
        forbid(tmp_path / "sets")
        words = str(tmp_path / "sets"), "cannot be read: Permission denied"
        refused(lambda: present("mnist", tmp_path / "sets"), *words)
        for name in ("mnist", "cifar10", "femnist", "shakespeare", "celeba", "tiny-imagenet"):
            refused_source(name, tmp_path / "sets", *words)

    def test_a_data_folder_in_a_folder(self, tmp_path: Path, forbid: Callable[[Path], None]) -> None:
        forbid(tmp_path)
        refused_source("fashion", tmp_path / "sets", f"{tmp_path}/sets cannot be read: Permission denied")

    @pytest.mark.parametrize("folder", [False, True], ids=["the file", "its folder"])
    def test_an_npz_file(self, own: Path, folder: bool, forbid: Callable[[Path], None]) -> None:
        forbid(own if folder else own / "own.npz")
        refused_source(f"npz:{own}/own.npz", None, f"{own}/own.npz cannot be read: Permission denied")

    def test_no_message_says_to_delete_it(self, tmp_path: Path, forbid: Callable[[Path], None]) -> None:
        (tmp_path / "MNIST/raw").mkdir(parents=True)
        (tmp_path / "MNIST/raw/train-images-idx3-ubyte").write_bytes(b"\0")
        forbid(tmp_path / "MNIST/raw/train-images-idx3-ubyte")
        with pytest.raises(UserError, match=r"train-images-idx3-ubyte cannot be read: Permission denied$"):
            load("mnist", str(tmp_path))

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"^there is no file \S*nope\.npz$"):
            load(f"npz:{tmp_path}/nope.npz", None)

    def test_a_folder_in_place_of_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "own.npz").mkdir()
        refused_source(f"npz:{tmp_path}/own.npz", None, "own.npz is a folder")

    @pytest.mark.parametrize("content", [b"x,y\n1,2\n", b""], ids=["text", "nothing"])
    def test_a_file_that_is_no_archive(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "own.npz").write_bytes(content)
        with pytest.raises(UserError, match=r"own\.npz cannot be read as NumPy arrays: it is not an \.npz archive$"):
            load(f"npz:{tmp_path}/own.npz", None)


# ── objects ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Items:
    """A dataset of the items that are given."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "label below zero": ({"clients": [PAIR, (PAIR[0], PAIR[1] - 1)]}, "client 1: label -1 is out of range"),
    "test label below zero": ({"test": (PAIR[0], PAIR[1] - 1)}, "the test set: label -1 is out of range"),
    "labels in a column": ({"clients": [(PAIR[0], PAIR[1][:, None])]}, "labels of shape (4, 1); give one label"),
    "labels, test numbers": (
        {"test": (PAIR[0], PAIR[1].float())},
        "the test set has numbers for targets (float32), client 0 has labels (int64)",
    ),
    "numbers, test labels": (
        {"clients": [(PAIR[0], torch.zeros(4))] * 2},
        "the test set has labels for targets (int64), client 0 has numbers (float32)",
    ),
    "numbers and labels": (
        {"clients": [PAIR, (PAIR[0], torch.zeros(4, dtype=torch.float64))]},
        "client 1 has numbers for targets (float64), client 0 has labels (int64)",
    ),
    "labels and numbers": (
        {"clients": [(PAIR[0], torch.zeros(4)), (PAIR[0], PAIR[1].int())], "test": (PAIR[0], torch.zeros(4))},
        "client 1 has labels for targets (int32), client 0 has numbers (float32)",
    ),
    "bytes and numbers": (
        {"clients": [(PAIR[0].byte(), PAIR[1]), PAIR], "test": (PAIR[0].byte(), PAIR[1])},
        "client 1 has samples of type float32, client 0 of type uint8",
    ),
    "numbers and tokens": (
        {"clients": [PAIR, PAIR, (PAIR[0].long(), PAIR[1])]},
        "client 2 has samples of type int64, client 0 of type float32",
    ),
    "bytes, test numbers beyond 1": (
        {"clients": [(PAIR[0].byte(), PAIR[1])], "test": (PAIR[0] + 1.5, PAIR[1])},
        "the test set has samples of type float32, client 0 of type uint8",
    ),
    "numbers below 0, test bytes": (
        {"clients": [(PAIR[0] - 0.5, PAIR[1])], "test": (PAIR[0].byte(), PAIR[1])},
        "the test set has samples of type uint8, client 0 of type float32",
    ),
    "items of bytes and numbers": (
        {"clients": [Items((PAIR[0][0], 0), (PAIR[0][1].byte(), 0))]},
        "client 0: item 1 is of type uint8, item 0 of type float32",
    ),
    "targets of two shapes": (
        {"clients": [(PAIR[0], torch.zeros(4)), (PAIR[0], torch.zeros(4, 1))]},
        "client 1 has targets of shape (1,), client 0 of shape ()",
    ),
    "dict items": (
        {"clients": [Items({"x": 1, "y": 0})]},
        "client 0: item 0 is a dict of 2 ('x', 'y'); an item must be (input, target)",
    ),
    "items without target": (
        {"clients": [TensorDataset(PAIR[0])]},
        "item 0 is a tuple of 1 (Tensor of shape (2,)); an item must be (input, target)",
    ),
    "items of three": (
        {"clients": [PAIR, Items((PAIR[0][0], 0, 1))]},
        "client 1: item 0 is a tuple of 3 (Tensor of shape (2,), int, int); an item must be (input, target)",
    ),
    "a dataset of three tensors": (
        {"test": TensorDataset(*PAIR, torch.arange(4))},
        "the test set: item 0 is a tuple of 3 (Tensor of shape (2,), Tensor of shape (), Tensor of shape ()); an item",
    ),
    "a later item of three": (
        {"clients": [Items((PAIR[0][0], 0), (PAIR[0][0], 0), (PAIR[0][1], 0, 1))]},
        "client 0: item 2 is a tuple of 3",
    ),
    "three arrays": (
        {"clients": [(*PAIR, PAIR[1])]},
        "client 0 is a tuple of 3 (Tensor of shape (4, 2), Tensor of shape (4,), Tensor of shape (4,)); it must be a",
    ),
    "an input that is a dict": (
        {"clients": [Items(({"ids": PAIR[0][0], "mask": PAIR[0][0]}, 0))]},
        "the test set has samples of one tensor, client 0 of several (ids, mask); give all alike",
    ),
    "an input of two arrays": (
        {"clients": [Items(((np.zeros(2), np.zeros(2)), 0))]},
        "the test set has samples of one tensor, client 0 of several (0, 1)",
    ),
    "two targets": (
        {"clients": [(PAIR[0], (PAIR[0], PAIR[0]))], "test": (PAIR[0], (PAIR[0], PAIR[0]))},
        "client 0 has several targets a sample; give a loss that reads them: task=my_loss",
    ),
    "an input that lacks a part": (
        {"clients": [Items(({"a": PAIR[0][0], "b": PAIR[0][0]}, 0), ({"a": PAIR[0][0]}, 0))]},
        "client 0: the input of item 1 is a dict of 1 ('a'), that of item 0 a dict of 2 ('a', 'b'); give all alike",
    ),
    "a pair with a dict of inputs": (
        {"clients": [({"a": PAIR[0], "b": PAIR[0]}, PAIR[1])]},
        "the test set has samples of one tensor, client 0 of several (a, b)",
    ),
    "a pair with a tuple of inputs": (
        {"test": ((PAIR[0], PAIR[0]), PAIR[1])},
        "the test set has samples of several (0, 1), client 0 of one tensor",
    ),
    "a label that is an identifier": (
        {"clients": [(PAIR[0], PAIR[1] + 10**12)]},
        "client 0: label 1000000000002 is out of range; labels go from 0 to at most 999,999",
    ),
    "nan in an input": (
        {"clients": [PAIR, (torch.tensor([[0.0, 0.0], [1.0, torch.nan]]), PAIR[1][:2])]},
        "client 1, row 1: the input holds nan; every input and target must be a finite number",
    ),
    "infinity in a target": (
        {
            "model": nn.Linear(2, 1),
            "clients": [(PAIR[0], torch.zeros(4)), (PAIR[0], torch.tensor([0.0, 1.0, -torch.inf, 0.0]))],
            "test": (PAIR[0], torch.zeros(4)),
        },
        "client 1, row 2: the target holds -inf; every",
    ),
    "infinity in single precision, the run in double": (
        {"precision": "fp64", "test": (PAIR[0] + torch.inf, PAIR[1])},
        "the test set, row 0: the input holds inf; every",
    ),
    "nan in the test set": ({"test": (PAIR[0] * torch.nan, PAIR[1])}, "the test set, row 0: the input holds nan"),
    "numbers beyond single precision": (
        {"clients": [(PAIR[0].double() - 1e39, PAIR[1])]},
        "client 0, row 0: the input holds -1e+39, which is infinite in float32; scale it, or use --precision fp64",
    ),
    "items that are tensors": ({"test": PAIR[0]}, "the test set: item 0 is a Tensor; an item must be (input, target)"),
    "items of two shapes": (
        {"clients": [Items(([1.0], 0), ([1.0, 2.0], 0))]},
        "item 1 has shape (2,), item 0 has (1,)",
    ),
    "words for labels": ({"clients": [(PAIR[0], list("abcd"))]}, "client 0 holds what is not a tensor of numbers"),
    "a pair of numbers": ({"clients": [(1, 2)]}, "client 0 is a pair of single numbers"),
    "a dict for a client": ({"clients": [{"x": PAIR[0], "y": PAIR[1]}]}, "client 0 is neither a pair (x, y)"),
    "a text of clients": ({"clients": "ab"}, "clients is of type str; it must be a sequence of datasets"),
    "a test set for nobody": (
        {"clients": {"a": PAIR}, "test": {"b": PAIR}},
        "test has a set for 'b', but there is no such client",
    ),
    "tests in order for clients by name": ({"clients": {"a": PAIR}, "test": [PAIR]}, "clients have names; give test"),
    "too few test sets": ({"test": [PAIR]}, "test has 1 test sets, but there are 2 clients; give one for each"),
    "no test set for anybody": ({"test": [None, None]}, "every client's is None"),
    "bytes for one and numbers for another": (
        {"test": [PAIR, (torch.zeros(3, 2, dtype=torch.uint8), PAIR[1][:3])]},
        "the test set of client 1 has samples of type uint8, the test set of client 0 of type float32; give all alike",
    ),
    "no test set at all": ({"test": None}, "there is no test set; give test=…, or hold samples of the clients out"),
    "clients one by one": ({"clients": iter([PAIR])}, "it must be a sequence of datasets, one for each client"),
    "a number of own clients": ({"clients": 7}, "clients (one dataset each)"),
    "a function for a model": ({"model": lambda: nn.Linear(2, 3)}, "model is of type function; it must be a torch.nn"),
    "a model with two answers": (
        {"model": Answering(2, 3, lambda y: (y, y))},
        "the model answers with a tuple of 2 tensors; it must return one tensor",
    ),
    "a model that forgets samples": (
        {"model": Answering(2, 3, lambda y: y[:1])},
        "the model answers 2 samples with shape (1, 3), but there are 3 classes",
    ),
    "a model that answers numbers the other way round": (
        {"model": Answering(2, 1, lambda y: y.T), "clients": [NUMBERS], "test": NUMBERS},
        "the model answers 2 samples with shape (1, 2), but a target is 1 number",
    ),
    "whole numbers for a network of numbers": (
        {"clients": [(PAIR[0].long(), PAIR[1])], "test": (PAIR[0].long(), PAIR[1])},
        "(whole numbers are taken as tokens; give features as float32)",
    ),
    "a class for a model": ({"model": nn.Linear}, "model is the class Linear; it must be a torch.nn.Module"),
    "a number for a scenario": ({"scenario": 3}, "scenario is of type int; give a name"),
    "a tensor for metrics": ({"metrics": torch.zeros(2, 3)}, "metrics is of type Tensor; give names"),
    "a function for metrics": ({"metrics": lambda output, target: output}, "metrics is of type function; give names"),
    "a dict for a scenario": ({"scenario": {"rounds": 3}}, "scenario is of type dict; give a name"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_objects_are_refused(case: str) -> None:
    changes, words = WRONG[case]
    right: dict[str, Any] = {"model": nn.Linear(2, 3), "clients": [PAIR, PAIR], "test": PAIR}
    refused(lambda: headway.simulate("fedacg", **right | changes, rounds=1, device="cpu"), words)


def test_a_number_is_no_method() -> None:
    refused(lambda: headway.simulate(3, rounds=1), "method is of type int; give a name such as 'fedacg'")  # type: ignore[arg-type]


def test_a_number_is_no_sequence_of_clients() -> None:
    refused(
        lambda: build(Scenario(), method("fedacg"), clients=7, test=PAIR),  # type: ignore[arg-type]
        "clients is of type int; it must be a sequence of datasets",
    )


def test_a_list_of_arrays_is_one_array_a_sample() -> None:
    """It is no item of several inputs; nor is a vector that is written as a list of numbers."""
    x, y = [list(row) for row in PAIR[0].numpy()], PAIR[1].tolist()
    dataset = Items(*zip(x, y, strict=True))
    run = headway.simulate("fedacg", model=nn.Linear(2, 3), clients=[(x, y)], test=dataset, rounds=1, device="cpu")
    assert run.scenario.clients == 1


def test_large_numbers_are_finite_in_double_precision() -> None:
    pair = (PAIR[0].double() - 1e39, PAIR[1])
    chosen = Scenario(precision="fp64", model="linear", device="cpu")
    experiment = build(chosen, method("fedavg"), clients=[pair], test=pair)
    assert experiment.federation.train.x.max() == -1e39


def test_nan_in_a_file_is_refused_with_client_and_row(own: Path) -> None:
    """No round is played: no rate would help."""
    with np.load(own / "own.npz") as archive:
        held = dict(archive)
    held["x_train"][[2, 64], 3] = np.nan
    np.savez(own / "own.npz", **held)
    chosen: dict[str, Any] = {"data": f"npz:{own}/own.npz", "model": "linear", "device": "cpu"}
    natural = scenario(**chosen, partition="natural")
    refused(lambda: headway.simulate("fedavg", natural, out=own / "run"), "client 2, row 0: the input holds nan")
    assert not (own / "run").exists()
    held["x_train"][2, 3] = 0.0
    np.savez(own / "own.npz", **held)
    (own / "rows.json").write_text(json.dumps([[0, 1], [2, 3]]))
    split = scenario(**chosen, partition=f"file:{own}/rows.json")
    assert build(split, method("fedavg")).population == 2, "row 64 is nobody's"


# ── what the task was taken for ──────────────────────────────────────────────────────────────────────────────────────

FLAGS = torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
TASKS: dict[str, tuple[dict[str, Any], str, str]] = {
    "classes": ({}, "classification of 3 classes, cross-entropy, accuracy", ""),
    "classes by squared error": (
        {"loss": "squared"},
        "classification of 3 classes, squared error to one-hot classes, accuracy",
        "",
    ),
    "numbers": (
        {"clients": [(PAIR[0], torch.tensor([0.5, 1.0, 0.0, 2.0]))], "test": (PAIR[0], torch.zeros(4))},
        "regression of one number a sample, squared error, loss (headline), RMSE, R²",
        "",
    ),
    "binary": (
        {"clients": [(PAIR[0], FLAGS[:, 0])], "test": (PAIR[0], FLAGS[:, 0])},
        "regression of one number a sample, squared error, loss (headline), RMSE, R²",
        "targets are all 0 or 1, but of type float32: they are learnt as numbers; if they are classes",
    ),
    "labels as floats": (
        {"clients": [(PAIR[0], PAIR[1].double())], "test": (PAIR[0], PAIR[1].double())},
        "regression of one number a sample, squared error, loss (headline), RMSE, R²",
        "targets are all whole numbers, but of type float64",
    ),
    "several labels": (
        {"clients": [(PAIR[0], FLAGS)], "test": (PAIR[0], FLAGS)},
        "regression of 2 numbers a sample, squared error, loss (headline), RMSE, R²",
        "targets are all 0 or 1: they are learnt as numbers; if a sample has one class",
    ),
}


@pytest.mark.parametrize("case", TASKS)
def test_a_run_says_what_the_task_was_taken_for(
    case: str, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    """A line at the start on standard error; where the targets look like classes, a warning too."""
    changes, task, doubt = TASKS[case]
    outputs = 1 if "one number" in task else 2 if "2 numbers" in task else 3
    given: dict[str, Any] = {"model": nn.Linear(2, outputs), "clients": [PAIR], "test": PAIR} | changes
    headway.compare(["fedavg", "fedacg"], rounds=1, device="cpu", executor="serial", **given)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"headway: task: {task}\n", "once for both methods"
    assert {str(one.message)[: len(doubt)] for one in recwarn.list} == ({doubt} if doubt else set())


def test_the_command_line_says_it_too(tmp_path: Path) -> None:
    """On standard error: with --json standard output has JSON alone. `--quiet` leaves the line out, not the doubt."""
    x = np.zeros((8, 2), np.float32)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=FLAGS[:, 0].repeat(2), x_test=x, y_test=FLAGS[:, 0].repeat(2))
    words = ["run", "fedavg", "--scenario", f"npz:{tmp_path}/own.npz/iid/2x2", "--model", "linear", "--rounds", "1"]
    words += ["--device", "cpu", "--executor", "serial", "--json"]
    told = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "told")])
    quiet = CliRunner().invoke(app, [*words, "--quiet", "--out", str(tmp_path / "quiet")])
    doubt = "headway: targets are all 0 or 1, but of type float32"
    assert (
        told.stderr.splitlines()[0]
        == "task: regression of one number a sample, squared error, loss (headline), RMSE, R²"
    )
    assert told.stderr.splitlines()[-1].startswith(doubt)
    assert [line[: len(doubt)] for line in quiet.stderr.splitlines()] == [doubt]
    for answer in (told, quiet):
        assert answer.exit_code == 0
        assert json.loads(answer.stdout)["runs"][0]["name"] == "fedavg"
