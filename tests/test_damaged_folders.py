"""What is wrong in a run's folder is one line, never another number.

$HEADWAY_DAMAGE is how often each folder is damaged at random.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headway as hw
from conftest import SMALL, own_problem
from damaged_files import Look, damaged
from headway.cli import main as cli
from headway.errors import UserError
from headway.papers import claims, reproduce
from headway.runs import packed
from headway.runs.files import read_json, write_checked, write_json
from headway.runs.result import Result
from headway.runs.study import load_study, resume_study
from headway.scenario import settings_of
from test_resume_with_changes import Stopping

COUNT = int(os.environ.get("HEADWAY_DAMAGE", "120"))
SCENARIO = SMALL.changed(rounds=4, checkpoint_every=2, deterministic=True, executor="serial")
LITTLE: dict[str, Any] = {"rounds": 2, "clients": 6, "model": "linear", "steps": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose clients keep state."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    hw.simulate("scaffold", SCENARIO, out=folder, **own_problem())
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, ended as by a kill: its checkpoint is of round 2, its lines go to round 3."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(KeyboardInterrupt):
        hw.simulate("scaffold", SCENARIO, out=folder, observer=Stopping(3), **own_problem())
    return folder


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison on the embedded data, so with splits, as a column of a paper's table has it."""
    folder = tmp_path_factory.mktemp("compared") / "study"
    hw.compare(["fedavg", "fedprox"], out=folder, executor="serial", **LITTLE)
    write_checked(folder / "reproduce.json", {"item": "paper/table-1", "title": "Table 1", "seeds": 1, "made": {}})
    return folder


@pytest.fixture(scope="module")
def claimed(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run as it is kept for others: packed, without its checkpoint."""
    folder = tmp_path_factory.mktemp("claimed") / "run"
    folder.mkdir()
    claims._copy(reproduce.read(whole), folder)
    return folder


def numbers(result: Result) -> Any:
    """Everything that a run says, without the clock of a round that was played again and without how it is executed."""
    settings = {
        name: value for name, value in result.scenario.as_dict().items() if name not in settings_of("execution")
    }
    records = [{name: value for name, value in one.items() if "seconds" not in name} for one in result.records]
    return result.method, settings, json.loads(json.dumps(records))  # tuples are lists in a file


def weights(result: Result) -> list[list[Any]]:
    return [[name, tensor.tolist()] for name, tensor in result.model.state_dict().items()]


def reported(folder: Path) -> Any:
    study = load_study([folder])
    rows = [{name: value for name, value in row.items() if name not in ("folders", "ended")} for row in study.summary()]
    return rows, study.note, [numbers(one) for runs in study.runs.values() for one in runs]


def verified(folder: Path) -> Any:
    """As `headway resume` looks at a finished comparison or run."""
    return [numbers(one) for runs in load_study([folder], verified=True).runs.values() for one in runs]


def resumed(folder: Path) -> Any:
    result = hw.resume(folder, **own_problem())
    return numbers(result), weights(result)


def loaded(folder: Path) -> Any:
    """As `headway export` looks at a run."""
    result = hw.load_run(folder, **own_problem())
    return numbers(result), weights(result)


def gone_on(folder: Path) -> Any:
    study = resume_study(folder)
    return [(numbers(one), weights(one)) for runs in study.runs.values() for one in runs]


def tabled(folder: Path) -> Any:
    """As `headway reproduce --from` looks at a folder."""
    found = reproduce.read(folder)
    sure = found.records[:2]  # that a line after the checkpoint is lost, a kill does too
    return sure, found.failure, reproduce.noted(folder)


CASES: dict[str, tuple[str, tuple[Look, ...]]] = {
    "a finished run": ("whole", (reported, verified, resumed, tabled)),
    "a stopped run": ("stopped", (reported, resumed, loaded, tabled)),
    "a kept run": ("claimed", (reported, verified, tabled)),
    "a comparison": ("compared", (reported, verified, gone_on)),
}


@pytest.mark.filterwarnings("ignore:some of these runs are from before")
@pytest.mark.parametrize("case", CASES)
def test_damage_is_one_line_or_changes_nothing(case: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name, looks = CASES[case]
    count = COUNT // 3 if name == "compared" else COUNT  # it takes the longest
    counts = damaged(request.getfixturevalue(name), tmp_path / "copy", count, 7, looks, ["reproduce.json"])
    assert counts["refused"] > sum(counts.values()) / 2
    assert counts["harmless"] > 0


# One fault after another.


def lines(folder: Path) -> list[bytes]:
    return (folder / "rounds.jsonl").read_bytes().splitlines(keepends=True)


def copied(folder: Path, place: Path) -> Path:
    return Path(shutil.copytree(folder, place / "run"))


def refused(look: Look, folder: Path, words: str) -> str:
    with pytest.raises(UserError, match=words) as fault:
        look(folder)
    assert "\n" not in str(fault.value)
    return str(fault.value)


LINES: dict[str, tuple[Callable[[list[bytes]], Any], str]] = {
    "a score": (
        lambda lines: lines.__setitem__(2, lines[2].replace(b'"accuracy": 0.', b'"accuracy": 0.9')),
        r"line 3 is damaged: .*checksum differs.*; rounds up to 2 are sound",
    ),
    "a time": (
        lambda lines: lines.__setitem__(1, lines[1].replace(b'"seconds_training": ', b'"seconds_training": 1')),
        r"line 2 is damaged: .*; round up to 1 is sound",
    ),
    "the checksum": (
        lambda lines: lines.__setitem__(3, lines[3].replace(b'"chain": "', b'"chain": "0')),
        r"line 4 is damaged: .*; rounds up to 3 are sound",
    ),
    "no checksum": (
        lambda lines: lines.__setitem__(3, lines[3].split(b', "chain"')[0] + b"}\n"),
        r"line 4 is damaged: it has no checksum",
    ),
    "a round less": (lambda lines: lines.pop(1), r"line 2 is damaged: it is of round 3, where round 2 should be"),
    "the last round less": (lambda lines: lines.pop(), r"does not hold rounds 1 to 4.*rounds up to 3 are sound"),
    "two rounds swapped": (lambda lines: lines.insert(1, lines.pop(2)), r"line 2 is damaged: it is of round 3"),
    "a short record": (lambda lines: lines.__setitem__(0, b'{"round": 1}\n'), "line 1 is damaged: .* 'steps'"),
    "words for a number": (
        lambda lines: lines.__setitem__(0, lines[0].replace(b'"steps": ', b'"steps": "many", "x": ')),
        "line 1 is damaged: 'steps' is \"many\"; no round before it is sound",
    ),
    "deep JSON": (
        lambda lines: lines.__setitem__(0, b"[" * 100_000 + b"\n"),
        "line 1 is damaged: it is nested too deep",
    ),
    "a long number": (lambda lines: lines.__setitem__(0, b"9" * 5000 + b"\n"), "line 1 is damaged: "),
    "no number": (lambda lines: lines.__setitem__(0, b'{"round": NaN}\n'), "line 1 is damaged: NaN is not a number"),
}


@pytest.mark.parametrize("name", LINES)
def test_a_changed_round_is_named_with_what_is_sound(name: str, whole: Path, tmp_path: Path) -> None:
    """By who reports, resumes, exports or makes a table from it."""
    change, words = LINES[name]
    folder = copied(whole, tmp_path)
    changed = lines(folder)
    change(changed)
    (folder / "rounds.jsonl").write_bytes(b"".join(changed))
    for look in (reported, verified, resumed, loaded, tabled):
        assert str(folder / "rounds.jsonl") in refused(look, folder, words)


def test_rounds_of_another_run_are_refused(whole: Path, tmp_path: Path) -> None:
    """Every line is sound, and the file is not this run's: told by the checkpoint, and by the summary without one."""
    folder = copied(whole, tmp_path)
    hw.simulate("scaffold", SCENARIO.changed(seed=5), out=tmp_path / "other", **own_problem())
    shutil.copy(tmp_path / "other" / "rounds.jsonl", folder)
    refused(reported, folder, "rounds 1 to 4 are not those that the checkpoint was made with")
    shutil.rmtree(folder / "checkpoint")
    refused(reported, folder, r"rounds 1 to 4 are not those that summary\.json was made of")


def test_packed_rounds_of_another_run_are_refused(claimed: Path, tmp_path: Path) -> None:
    folder = copied(claimed, tmp_path)
    assert [one["round"] for one in reproduce.read(folder).records] == [1, 2, 3, 4]
    other = [{**one, "accuracy": 0.5} for one in reproduce.read(folder).records]
    (folder / packed.NAME).write_bytes(packed.pack(other))
    for look in (reported, tabled):
        refused(look, folder, r"are not those that summary\.json was kept with")


def test_every_line_has_the_checksum_that_the_documentation_says(whole: Path) -> None:
    before, numbers = "", ""
    for line in lines(whole):
        record = json.loads(line)
        said = record.pop("chain")
        before = hashlib.sha256((before + json.dumps(record, sort_keys=True)).encode()).hexdigest()[:16]
        assert said == before
        timeless = {name: value for name, value in record.items() if "seconds" not in name}
        numbers = hashlib.sha256((numbers + json.dumps(timeless, sort_keys=True)).encode()).hexdigest()[:16]
    assert read_json(whole / "summary.json")["chain"] == before
    assert read_json(whole / "checkpoint" / "manifest.json")["rounds"] == numbers


# scenario.toml


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rounds = 4", "rounds = 9", "rounds is 9, but the run was made with 4"),
        ("# target =", "target = 0.5", "target is 0.5, but the run was made with None"),
        ("rate = 0.1\n", "rate = 0.2\n", r"rate is 0\.2, but .* was run with 0\.1"),
        ("eval_every = 1\n", "", None),
        ('method = "scaffold"', 'method = "fedavg"', "method is fedavg, but .* was run with scaffold"),
        ("seed = 0", "seed = 1", "seed is 1, but .* was run with 0"),
    ],
)
def test_an_edited_setting_is_refused_with_how_to_run_it(
    old: str, new: str, words: str | None, whole: Path, stopped: Path, tmp_path: Path
) -> None:
    """Whether the run is finished or not: what was run is not what the file says then."""
    for number, (source, looks) in enumerate([(whole, (reported, verified, resumed, tabled)), (stopped, (resumed,))]):
        folder = copied(source, tmp_path / str(number))
        edit(folder / "scenario.toml", old, new)
        for look in looks:
            line = refused(look, folder, words or "its settings are not those that its first line was made of")
            assert f"headway run --scenario {folder / 'scenario.toml'} --out NEW" in line


def test_an_empty_scenario_is_not_the_default_one(whole: Path, compared: Path, tmp_path: Path) -> None:
    folder = copied(whole, tmp_path)
    (folder / "scenario.toml").write_bytes(b"")
    for look in (reported, resumed, tabled):
        refused(look, folder, r"scenario\.toml was changed since the run was made")
    study = Path(shutil.copytree(compared, tmp_path / "study"))
    (study / "scenario.toml").write_bytes(b"")
    for look in (reported, gone_on):
        refused(look, study, r"scenario\.toml was changed since the run was made: the first line, .*, is gone")


def test_where_and_how_a_run_is_executed_may_be_edited(stopped: Path, tmp_path: Path) -> None:
    """A run may be copied to another machine; spaces and comments are nobody's affair."""
    folder = copied(stopped, tmp_path)
    edit(folder / "scenario.toml", 'device = "cpu"', 'device = "auto"')
    edit(folder / "scenario.toml", "# data_dir =", f'data_dir = "{tmp_path}"')
    edit(folder / "scenario.toml", "rounds = 4", "rounds   = 4 # as many as the paper")
    assert len(hw.resume(folder, **own_problem()).records) == 4


def test_a_changed_copy_of_a_scenario_starts_another_run(whole: Path, tmp_path: Path) -> None:
    shutil.copy(whole / "scenario.toml", tmp_path / "mine.toml")
    edit(tmp_path / "mine.toml", "rounds = 4", "rounds = 1")
    assert len(hw.simulate("fedavg", tmp_path / "mine.toml", **own_problem()).records) == 1


# Manifests, summaries, studies.

CRAFTED: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{f"no {name}": lambda told, name=name: told.pop(name) for name in ("round", "scenario", "server", "executor")},
    **{f"no {name} either": lambda told, name=name: told.pop(name) for name in ("totals", "clients", "rounds", "ends")},
    **{
        f"a list for {name}": lambda told, name=name: told.update({name: [1]})
        for name in ("round", "scenario", "totals")
    },
    **{
        f"a number for {name}": lambda told, name=name: told.update({name: 3}) for name in ("server", "clients", "ends")
    },
    "a total of words": lambda told: told["totals"].update(steps="many"),
    "a total less": lambda told: told["totals"].pop("best_loss"),
    "a file elsewhere": lambda told: told.update(server="../../server-0000004.safetensors"),
    "an executor that is none": lambda told: told.update(executor="cereal"),
    "a shape of words": lambda told: told["clients"][0].__setitem__(2, ["many"]),
    "a type that is none": lambda told: told["clients"][0].__setitem__(1, "nn"),
    "no threads": lambda told: told.update(threads=0),
    "a round below none": lambda told: told.update(round=-1),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_manifest_is_one_line(name: str, whole: Path, tmp_path: Path) -> None:
    """Its checksum is right, and what it says is not what a manifest can say."""
    folder = copied(whole, tmp_path)
    path = folder / "checkpoint" / "manifest.json"
    told = read_json(path)
    CRAFTED[name](told)
    write_checked(path, told)
    for look in (reported, verified, resumed, loaded):
        refused(look, folder, r"manifest\.json does not have its")


def test_a_deep_manifest_is_one_line(whole: Path, tmp_path: Path) -> None:
    folder = copied(whole, tmp_path)
    for content in (b"[" * 100_000, b'{"a":' * 100_000, b'{"format": ' + b"9" * 5000 + b"}"):
        (folder / "checkpoint" / "manifest.json").write_bytes(content)
        refused(reported, folder, r"manifest\.json cannot be read: ")


def test_a_lost_manifest_does_not_start_the_run_over(stopped: Path, tmp_path: Path) -> None:
    folder = copied(stopped, tmp_path)
    (folder / "checkpoint" / "manifest.json").unlink()
    before = lines(folder)
    refused(resumed, folder, r"manifest\.json is missing, though rounds were run")
    assert lines(folder) == before


def test_a_changed_name_in_a_comparison_is_refused(compared: Path, tmp_path: Path) -> None:
    folder = copied(compared, tmp_path)
    edit(folder / "study.json", "fedprox", "fedacg")
    for look in (reported, gone_on):
        refused(look, folder, r"study\.json is damaged: it fails its checksum")


def test_a_run_of_a_comparison_that_lost_its_settings_is_not_left_out(compared: Path, tmp_path: Path) -> None:
    folder = copied(compared, tmp_path)
    (folder / "fedprox" / "seed-0" / "scenario.toml").unlink()
    refused(reported, folder, "it has no scenario.toml any more, but other files of a run")


def test_a_split_that_is_gone_is_made_again_or_refused(compared: Path, tmp_path: Path) -> None:
    folder = copied(compared, tmp_path) / "fedavg" / "seed-0"
    (folder / "summary.json").unlink()
    before = (folder / "split.npz").read_bytes()
    (folder / "split.npz").unlink()
    hw.resume(folder)
    assert (folder / "split.npz").read_bytes() == before
    shutil.copy(compared / "fedavg" / "seed-0" / "split.npz", tmp_path / "kept.npz")
    (folder / "summary.json").unlink()
    path = folder / "checkpoint" / "manifest.json"
    write_checked(path, {**read_json(path), "split": "0" * 64})
    (folder / "split.npz").unlink()
    refused(hw.resume, folder, r"split\.npz is missing, and data or split are not what")
    assert not (folder / "split.npz").exists()


def test_a_damaged_finished_run_is_not_said_to_be_done(whole: Path, compared: Path, tmp_path: Path) -> None:
    """By the command: every file is read before anything is said."""
    folder = copied(whole, tmp_path)
    for file in ("checkpoint/server-0000004.safetensors", "checkpoint/clients.rows"):
        path = folder / file
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with pytest.raises(UserError, match="the checkpoint is damaged"):
            CliRunner().invoke(cli.app, ["resume", str(folder)], catch_exceptions=False)
        path.write_bytes(content)
    answer = CliRunner().invoke(cli.app, ["resume", str(folder)], catch_exceptions=False)
    assert "nothing is left to do" in answer.output
    study = Path(shutil.copytree(compared, tmp_path / "study"))
    (study / "fedprox" / "seed-0" / "split.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"split\.npz is damaged"):
        CliRunner().invoke(cli.app, ["resume", str(study)], catch_exceptions=False)


def test_a_sweep_does_not_choose_among_the_undamaged(tmp_path: Path) -> None:
    """A candidate whose file was changed is not one that failed: another would be the best."""

    def swept() -> hw.Sweep:
        return hw.sweep(
            "fedavg", {"rate": [0.1, 0.2]}, SCENARIO.changed(rounds=1), out=tmp_path / "sweep", **own_problem()
        )

    best = swept().best
    assert best is not None
    file = tmp_path / "sweep" / best.candidate.folder / "seed-0" / "rounds.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"train_loss": ', b'"train_loss": 1'))
    with pytest.raises(UserError, match=r"line 1 is damaged"):
        swept()


# Folders of an earlier version.


def as_before(folder: Path) -> Path:
    """The folder as the version before there were checksums has it."""
    (folder / "rounds.jsonl").write_bytes(b"".join(line.split(b', "chain"')[0] + b"}\n" for line in lines(folder)))
    scenario = folder / "scenario.toml"
    scenario.write_text(scenario.read_text().split("\n", 1)[1])
    path = folder / "checkpoint" / "manifest.json"
    told = {
        name: value for name, value in read_json(path).items() if name not in ("ends", "rounds", "split", "threads")
    }
    write_checked(path, {**told, "format": 1})
    if (folder / "summary.json").is_file():
        told = read_json(folder / "summary.json")
        write_json(folder / "summary.json", {name: told[name] for name in told if name not in ("chain", "check")})
    return folder


@pytest.mark.filterwarnings("ignore:.*does not say with how many threads")
def test_a_folder_of_an_earlier_version_is_read_with_one_line(whole: Path, tmp_path: Path) -> None:
    folder = as_before(copied(whole, tmp_path))
    shutil.copytree(folder, tmp_path / "other")
    for look in (reported, verified, resumed, loaded):
        with pytest.warns(UserWarning, match="from before rounds had checksums") as told:
            seen = look(folder)
        assert len(told) == 1
        assert seen == look(whole)
    for command in (["report", "--out", str(tmp_path / "out")], ["resume"], ["resume", "--json"]):
        answer = CliRunner().invoke(cli.app, [*command, str(folder)], catch_exceptions=False)
        assert answer.stderr.count("from before rounds had checksums") == 1
        assert "from before" not in answer.stdout


def test_a_folder_of_an_earlier_version_goes_on_with_checksums(stopped: Path, whole: Path, tmp_path: Path) -> None:
    folder = as_before(copied(stopped, tmp_path))
    with pytest.warns(UserWarning, match="threads|checksums") as told:
        seen = resumed(folder)
    assert [str(one.message).split(" ")[0] for one in told] == [str(folder), "some"]
    assert seen == resumed(whole)
    assert reported(folder)[2] == reported(whole)[2]  # the first new line's checksum is of the old ones too
    changed = lines(folder)
    changed[0] = changed[0].replace(b'"loss": ', b'"loss": 1')
    (folder / "rounds.jsonl").write_bytes(b"".join(changed))
    refused(reported, folder, "line 3 is damaged")
    edit(folder / "scenario.toml", "rounds = 4", "rounds = 5")
    refused(reported, folder, "rounds is 5")
