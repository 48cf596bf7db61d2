"""`headway data`: what is there, what is said of a split, and pictures of it."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from headway.cli import main
from headway.data.participation import SAMPLINGS
from headway.data.partition import PARTITIONS, split
from headway.data.sources import SOURCES, load, present
from headway.data.statistics import class_counts, class_mixes, sizes
from headway.errors import UserError
from headway.report.split_picture import CLIENTS_AT_MOST, draw_split
from source_files import MIXES, described


def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The only line that `headway …` says before it ends with code 2."""
    monkeypatch.setattr("sys.argv", ["headway", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.out == ""
    assert said.err.startswith("headway: ")
    assert said.err.count("\n") == 1
    return said.err


# ── statistics ───────────────────────────────────────────────────────────────────────────────────────────────────────


class TestStatistics:
    def test_two_clients_by_hand(self) -> None:
        """p = (½, ½, 0, 0): 2 classes, ½, e^ln 2 = 2, L1 1. p = (0, 0, 1, 0): 1 class, 1, e^0 = 1, L1 1.5."""
        counts = class_counts(np.array([0, 1, 2, 2, 2, 3]), [np.array([1, 0]), np.array([4, 2])], 4)
        assert counts.tolist() == [[1, 1, 0, 0], [0, 0, 2, 0]]
        assert dataclasses.astuple(class_mixes(counts)) == pytest.approx((1.5, 0.75, 1.5, 1.25))
        apart = [np.arange(3), np.arange(3, 7), np.arange(7, 16)]
        assert dataclasses.astuple(sizes(apart, 20)) == (3, 4, 9, 4)
        shared = [np.arange(3), np.arange(4), np.arange(9)]
        assert dataclasses.astuple(sizes(shared, 20)) == (3, 4, 9, 11), "a sample that several have is left out once"

    @settings(deadline=None, max_examples=60)
    @given(
        st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), min_size=1, max_size=9).map(np.array)
    )
    def test_they_are_within_their_bounds(self, counts: np.ndarray) -> None:
        found = class_mixes(counts)
        assert 1 / 3 <= found.largest_share + 1e-12 <= 1 + 1e-9
        assert 1 - 1e-9 <= found.exp_entropy <= found.classes_present + 1e-9
        assert 0 <= found.l1_to_uniform <= 4 / 3 + 1e-9
        assert class_mixes(counts * 7) == found, "shares alone count"


# ── headway data partitions, samplings ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("partitions", [line.spelled(name) for name, line in PARTITIONS.items()]),
        ("samplings", [f"{name}{line.argument}" for name, line in SAMPLINGS.items()]),
    ],
)
def test_every_line_of_the_tables_is_listed(command: str, names: list[str]) -> None:
    listed = json.loads(CliRunner().invoke(main.app, ["data", command, "--json"]).stdout)
    assert [line["name"] for line in listed] == names
    shown = CliRunner().invoke(main.app, ["data", command], env={"COLUMNS": "200"}).stdout
    assert all(line["name"] in shown and line["summary"] in shown for line in listed)


# ── headway data describe ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A data set with users, and one whose targets are numbers."""
    draw = np.random.default_rng(0)
    x, labels, users = draw.normal(size=(60, 3)), np.arange(60) % 4, np.repeat(["b", "a", "c"], [10, 20, 30])
    np.savez(tmp_path / "users.npz", x_train=x, y_train=labels, x_test=x[:9], y_test=labels[:9], users_train=users)
    y = draw.normal(size=(60, 2))
    np.savez(tmp_path / "numbers.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    return tmp_path


class TestDescribe:
    def test_the_embedded_data(self) -> None:
        found = described("fashion", "--partition", "iid", "--clients", "7")
        assert {name: found[name] for name in found if name not in MIXES} == {
            "name": "fashion",
            "samples": 6000,
            "test_samples": 2000,
            "classes": 10,
            "users": None,
            "partition": "iid",
            "split_seed": 0,
            "clients": 7,
            "clients_with_tests": 0,
            "size_min": 857,
            "size_median": 857,
            "size_max": 858,
            "left_out": 0,
        }
        assert found["classes_present"] == 10

    def test_it_is_the_split_of_a_run(self) -> None:
        """The same defaults, and the split's own seed."""
        labels = load("fashion", None).train.y.numpy()
        for seed in (0, 3):
            counts = class_counts(labels, split("dirichlet:0.3", labels, 60, seed), 10)
            found = described("fashion", "--split-seed", str(seed))
            assert {name: found[name] for name in MIXES} == dataclasses.asdict(class_mixes(counts))

    def test_users_of_the_data(self, own: Path) -> None:
        found = described(f"npz:{own / 'users.npz'}", "--partition", "natural")
        assert (found["clients"], found["users"], found["left_out"]) == (3, 3, 0)
        assert (found["size_min"], found["size_median"], found["size_max"]) == (10, 20, 30)
        found = described(f"npz:{own / 'users.npz'}", "--partition", "natural", "--clients", "2")
        assert (found["clients"], found["users"], found["left_out"]) == (2, 3, 30)

    def test_targets_that_are_numbers(self, own: Path) -> None:
        found = described(f"npz:{own / 'numbers.npz'}", "--partition", "quantity:0.5", "--clients", "5")
        assert found["classes"] == 0
        assert [found[name] for name in MIXES] == [None] * 4
        assert found["size_min"] >= 1
        assert found["size_max"] <= 56

    def test_own_lists(self, own: Path) -> None:
        (own / "rows.json").write_text(json.dumps({"first": [0, 4, 8], "second": [1, 2, 3, 5, 59]}))
        found = described(f"npz:{own / 'users.npz'}", "--partition", f"file:{own / 'rows.json'}")
        assert found["clients"] == 2
        assert (found["size_min"], found["size_max"], found["left_out"]) == (3, 5, 52)
        assert found["classes_present"] == (1 + 3) / 2

    def test_on_the_screen(self, own: Path) -> None:
        answer = CliRunner().invoke(main.app, ["data", "describe", "fashion", "--partition", "iid"])
        assert answer.exit_code == 0
        for words in ("6,000 + 2,000 samples, 10 classes", "iid, 60 clients", "MIT licence", "L1 to uniform"):
            assert words in answer.stdout
        answer = CliRunner().invoke(main.app, ["data", "describe", f"npz:{own / 'numbers.npz'}", "--partition", "iid"])
        assert "targets that are numbers" in answer.stdout
        assert "L1" not in answer.stdout

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ("fashon", ("no data set 'fashon'", "'fashion'")),
            ("fashion --partition natural", ("do not belong to users",)),
            ("fashion --clients -1", ("clients is -1", "at least 0")),
            ("fashion --split-seed -1", ("split_seed is -1", "at least 0")),
            ("fashion --picture split.gif", ("'split.gif'", ".png, .svg or .pdf")),
            ("fashion --picture nowhere/split.png", ("there is no folder nowhere",)),
            ("mnist --data-dir nowhere", ("nowhere does not exist", "--data-dir")),
        ],
    )
    def test_a_mistake_is_one_line(
        self,
        arguments: str,
        words: tuple[str, ...],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        line = refusal(monkeypatch, capsys, "data", "describe", *arguments.split())
        assert all(word in line for word in words), line
        assert list(tmp_path.iterdir()) == []


def cifar_rows(count: int, label: int = 0) -> bytes:
    return (bytes([label]) + bytes(3072)) * count


def damaged(folder: Path, kind: str) -> str:
    """A data set of the folder with one thing wrong; its name."""
    if kind == "corrupt":
        raw = folder / "MNIST" / "raw"
        raw.mkdir(parents=True)
        whole = bytearray(gzip.compress(bytes(4000)))
        whole[20] ^= 255
        (raw / "train-images-idx3-ubyte.gz").write_bytes(whole)
        return "mnist"
    place = folder / "cifar-10-batches-bin"
    place.mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (place / f"{name}.bin").write_bytes(cifar_rows(3))
    if kind == "missing":
        (place / "data_batch_4.bin").unlink()
    if kind == "truncated":
        (place / "data_batch_4.bin").write_bytes(cifar_rows(3)[:-1])
    if kind == "another class":
        (place / "data_batch_4.bin").write_bytes(cifar_rows(3, label=10))
    if kind == "too few names":
        (place / "batches.meta.txt").write_text("\n".join("abcdefghi"))
    return "cifar10"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing", ("data_batch_4.bin is missing", "'headway data get cifar10' downloads it")),
        ("truncated", ("data_batch_4.bin is truncated", "delete it, then 'headway data get cifar10'")),
        ("corrupt", ("train-images-idx3-ubyte.gz cannot be read", "delete it, then 'headway data get mnist'")),
        ("another class", ("data_batch_4.bin: label 10 is out of range; labels go from 0 to 9",)),
        ("too few names", ("batches.meta.txt names 9 classes; there are 10",)),
    ],
)
def test_a_damaged_file_is_one_line(
    kind: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = damaged(tmp_path, kind)
    line = refusal(monkeypatch, capsys, "data", "describe", name, "--data-dir", str(tmp_path))
    assert all(word in line for word in words), line


# ── pictures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class TestPicture:
    @pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
    def test_it_is_drawn_in_each_format(self, suffix: str, start: bytes, tmp_path: Path) -> None:
        path = tmp_path / f"split.{suffix}"
        found = described("fashion", "--clients", "12", "--picture", str(path))
        assert found["clients"] == 12
        assert path.read_bytes().startswith(start)

    def test_it_names_what_it_shows(self, own: Path) -> None:
        command = ["data", "describe", "fashion", "--clients", "12", "--picture", str(own / "a.svg")]
        answer = CliRunner().invoke(main.app, command)
        assert f"picture: {own / 'a.svg'}" in answer.stdout
        text = (own / "a.svg").read_text()
        for words in ("fashion, dirichlet:0.3, 12 clients", "Ankle boot", "client", "samples"):
            assert f">{words}<" in text
        described(f"npz:{own / 'numbers.npz'}", "--partition", "iid", "--clients", "3", "--picture", str(own / "b.svg"))
        assert ">class<" not in (own / "b.svg").read_text()

    @pytest.mark.parametrize(
        ("clients", "classes"), [(1, 1), (1, 200), (10, 10), (10, 100), (100, 2), (300, 62), (500, 10), (799, 1)]
    )
    def test_every_bubble_is_on_the_paper(
        self, clients: int, classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Areas are in proportion, cells are at least 3 points apart, and the picture is no poster."""
        counts = np.random.default_rng(0).integers(0, 50, (clients, classes)) + np.eye(clients, classes, dtype=int)
        counts[0, 0] = 50
        seen = watched(monkeypatch)
        draw_split(counts, (), "title", tmp_path / "a.png")
        rows, figure = seen[:-1], seen[0].figure
        assert max(figure.get_size_inches()) <= 20
        bubbles = [bubble for axes in rows for bubble in drawn(axes)]
        assert len(bubbles) == (counts > 0).sum()
        areas = np.array([area / counts[client, label] for client, label, area in bubbles])
        large = np.array([counts[client, label] for client, label, _ in bubbles]) > 25
        assert np.ptp(areas[large]) < 1e-9
        for axes in rows:
            box = axes.get_position()
            width = box.width * figure.get_size_inches()[0] * 72
            assert width / (axes.get_xlim()[1] - axes.get_xlim()[0]) >= 2.9
            assert 0 <= box.x0 < box.x1 <= 1
            assert 0 <= box.y0 < box.y1 <= 1

    def test_of_very_many_clients_some_are_shown_and_the_title_says_so(self, tmp_path: Path) -> None:
        path = draw_split(np.ones((3 * CLIENTS_AT_MOST, 1), int), (), "many", tmp_path / "a.svg")
        assert ">many (1,000 shown)<" in path.read_text()

    def test_a_name_that_looks_like_a_formula_is_a_name(self, tmp_path: Path) -> None:
        path = draw_split(np.ones((2, 2), int), ("$a$", "b_{"), "npz:$x.npz", tmp_path / "a.svg")
        assert ">npz:$x.npz<" in path.read_text()
        assert ">$a$<" in path.read_text()

    def test_it_is_no_empty_paper(self, tmp_path: Path) -> None:
        pixels = matplotlib.image.imread(draw_split(np.eye(10, dtype=int) * 9, (), "ten", tmp_path / "a.png"))
        assert 0.02 < (pixels[..., :3].min(-1) < 0.9).mean() < 0.5

    def test_a_place_that_cannot_be_written_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "a.png").mkdir()
        with pytest.raises(UserError, match=r"a\.png' cannot be written: "):
            draw_split(np.ones((2, 2), int), (), "title", tmp_path / "a.png")


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Filled with the axes of every figure that is drawn from now on."""
    from matplotlib.figure import Figure

    seen: list[Any] = []
    add = Figure.add_axes

    def note(self: Figure, *arguments: Any, **more: Any) -> Any:
        seen.append(add(self, *arguments, **more))
        return seen[-1]

    monkeypatch.setattr(Figure, "add_axes", note)
    return seen


def drawn(axes: Any) -> list[tuple[int, int, float]]:
    """Client, class and area of each bubble."""
    return [
        (int(x), int(y), float(area))
        for collection in axes.collections
        for (x, y), area in zip(collection.get_offsets(), collection.get_sizes(), strict=True)
    ]


# ── headway data list ────────────────────────────────────────────────────────────────────────────────────────────────


def listed(folder: Path) -> dict[str, dict[str, Any]]:
    command = ["data", "list", "--json", "--data-dir", str(folder)]
    answer = CliRunner().invoke(main.app, command, catch_exceptions=False)
    return {entry["name"]: entry for entry in json.loads(answer.stdout)}


LAYOUTS = [(name, number) for name, entry in SOURCES.items() for number in range(len(entry.layouts))]


class TestList:
    @pytest.mark.parametrize(("name", "number"), LAYOUTS)
    def test_a_set_is_there_when_all_files_of_a_layout_are(self, name: str, number: int, tmp_path: Path) -> None:
        files = [tmp_path / pattern.replace("*", "some") for pattern in SOURCES[name].layouts[number]]
        for file in files:
            assert not present(name, tmp_path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        assert present(name, tmp_path)
        others = {other for other, entry in SOURCES.items() if SOURCES[name].layouts[number] in entry.layouts}
        assert {entry["name"] for entry in listed(tmp_path).values() if entry["present"]} == others

    def test_packed_files_count_and_half_a_download_does_not(self, tmp_path: Path) -> None:
        (files,) = SOURCES["mnist"].layouts
        (tmp_path / files[0]).parent.mkdir(parents=True)
        for file in files:
            (tmp_path / f"{file}.gz.part").touch()
        assert not present("mnist", tmp_path)
        for file in files:
            (tmp_path / f"{file}.gz").touch()
        assert present("mnist", tmp_path)

    def test_every_set_is_listed_with_how_to_come_by_it(self, tmp_path: Path) -> None:
        found = listed(tmp_path / "not there yet")
        assert list(found) == list(SOURCES)
        assert not (tmp_path / "not there yet").exists()
        assert found["cifar10"]["download"]
        assert found["cifar10"]["download_bytes"] == 170_052_171
        assert found["cifar10"]["present"] is False
        assert "LEAF" in found["femnist"]["by_hand"]
        assert found["fashion"]["present"] is None
        answer = CliRunner().invoke(main.app, ["data", "list", "--data-dir", str(tmp_path / "not there yet")])
        for words in (*SOURCES, "170 MB", "by hand", "hf:NAME[,SAMPLES,TARGETS[,USERS]]", "(not there yet)"):
            assert words in answer.stdout

    def test_real_files_are_found(self, real_data: Callable[[str], Path]) -> None:
        for name in ("mnist", "femnist"):
            assert listed(real_data(name))[name]["present"]
