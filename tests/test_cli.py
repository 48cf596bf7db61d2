"""The command line from the shell: what it prints, what it writes, and what Ctrl-C leaves behind."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import headway
from command_line import Answer, called, environment, shell
from conftest import round_lines, timeless
from headway.cli.main import main
from headway.data import sources
from headway.engine import selection
from headway.methods.catalogue import METHODS
from headway.models.networks import network
from headway.scenario import Scenario

LITTLE = "--rounds 3 --clients 20 --steps 2 --device cpu --executor serial"
LONG = "--model linear --rounds 200 --clients 20 --steps 1 --eval-every 5 --checkpoint-every 50 --device cpu"
REPEATED = f"{LONG} --executor serial --deterministic"


FIRST = {
    "compare": f"compare fedavg fedacg --seeds 2 --json --model linear {LITTLE} --out compared",
    "run": f"run fedacg --model mlp {LITTLE} --deterministic --json --quiet --out ran",
    "another run": f"run fedavg --model mlp {LITTLE} --deterministic --quiet --out another",
    "run of two seeds": f"run fedacg --seeds 2 --model linear {LITTLE} --out seeds",
    "methods": "methods --json",
    "show": "show fedacg",
    "show sum": "show fedprox+acg:lam=0.9",
    "version": "--version",
    "help": "run --help",
    "nothing": "",
}
SECOND = {
    "export": "export ran",
    "again": "run --scenario ran/scenario.toml --json --quiet --out again",
    "report": "report ran another --out reported --json",
    "report of a comparison": "report compared --out retold --json",
    "report twice": "report ran ran --out twice --json",
    "other scenario": f"run fedacg --model mlp {LITTLE} --rate 0.2 --seed 1 --quiet --out other",
    "resume": "resume ran",
    "resume comparison": "resume compared",
}
THIRD = {"report mixed": "report ran other --out mixed --json"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shell")


@pytest.fixture(scope="module")
def said(place: Path) -> dict[str, Answer]:
    """The answers to all commands above; those of two are of a process as a shell starts it."""
    commands = FIRST | SECOND | THIRD
    return {
        name: (shell if name in ("run", "nothing") else called)(place, command, COLUMNS="200")
        for name, command in commands.items()
    }


def content(answer: Answer) -> Any:
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


# ── compare, run, export, report ─────────────────────────────────────────────────────────────────────────────────────


def test_compare_prints_json_and_nothing_else(said: dict[str, Answer]) -> None:
    rows = content(said["compare"])["methods"]
    assert [row["name"] for row in rows] == ["fedavg", "fedacg"]
    for row in rows:
        assert row["seeds"] == 2
        assert row["rounds"] == 3
        assert 0 < row["accuracy"] < 1
        assert row["accuracy_std"] >= 0
        assert {"target", "rounds_to_target", "bytes_to_target", "bytes_down", "bytes_up", "seconds"} <= set(row)
        assert len(row["rounds_to_target_each"]) == 2


def test_fedacg_sends_what_fedavg_sends(said: dict[str, Answer]) -> None:
    fedavg, fedacg = content(said["compare"])["methods"]
    for key in ("bytes_down", "bytes_up", "bytes_per_round"):
        assert fedavg[key] == fedacg[key] > 0


def test_progress_of_json_output_goes_to_standard_error(said: dict[str, Answer]) -> None:
    assert "fedacg · seed 1" in said["compare"].stderr
    assert said["run"].stderr == ""


def test_compare_draws_and_writes_its_tables(said: dict[str, Answer], place: Path) -> None:
    assert content(said["compare"])
    assert (place / "compared/compare.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    latex = (place / "compared/compare.tex").read_text(encoding="utf-8")
    assert latex.splitlines()[1].startswith(r"\begin{tabular}")
    assert len({line.count("&") for line in latex.splitlines() if line.endswith(r"\\")}) == 1


def test_the_columns_of_the_table_are_what_their_headings_say(said: dict[str, Answer], place: Path) -> None:
    head, _, *body = (place / "compared/compare.md").read_text(encoding="utf-8").splitlines()
    headings = [text.strip() for text in head.strip("|").split("|")]
    for row, line in zip(content(said["compare"])["methods"], body, strict=False):
        cells = dict(zip(headings, (text.strip(" *") for text in line.strip("|").split("|")), strict=True))
        assert cells["method"] == row["name"]
        assert cells["last accuracy %"] == f"{row['last_accuracy'] * 100:.2f} ± {row['last_accuracy_std'] * 100:.2f}"
        assert cells["top %"].startswith(f"{row['accuracy_top'] * 100:.2f}")
        assert cells["client spread (proxy)"].startswith(f"{row['client_accuracy_std'] * 100:.2f}")
        assert cells["MB a round"] == f"{row['bytes_per_round'] / 1e6:.2f}"
        assert cells["seconds"] == f"{row['seconds']:.1f}"


def test_a_run_of_several_seeds_is_a_table_with_its_folder(said: dict[str, Answer], place: Path) -> None:
    assert said["run of two seeds"].returncode == 0
    assert "2 seeds" in said["run of two seeds"].stdout
    assert "seeds/compare.png" in said["run of two seeds"].stdout
    assert sorted(path.name for path in (place / "seeds/fedacg").iterdir()) == ["seed-0", "seed-1"]


def test_a_run_in_json_names_its_folder(said: dict[str, Answer]) -> None:
    (numbers,) = content(said["run"])["runs"]
    assert numbers["name"] == "fedacg"
    assert numbers["folder"] == "ran"
    assert numbers["executor"] == "serial"


def test_an_exported_model_loads_and_is_as_good_as_the_run(said: dict[str, Answer], place: Path) -> None:
    assert said["export"].returncode == 0, said["export"].stderr
    assert "ran/model.safetensors" in said["export"].stdout
    data = sources.load("fashion", None)
    model = network("mlp", tuple(data.test.x.shape[1:]), data.classes)
    model.load_state_dict(safetensors.torch.load_file(place / "ran/model.safetensors"))
    with torch.no_grad():
        answers = model((data.test.x.float() / 255 - data.mean[0]) / data.std[0]).argmax(1)
    accuracy = float((answers == data.test.y).float().mean())
    assert accuracy == pytest.approx(content(said["run"])["runs"][0]["accuracy_raw"], abs=1e-6)


def test_report_of_runs_compares_them(said: dict[str, Answer], place: Path) -> None:
    rows = content(said["report"])["methods"]
    assert [row["name"] for row in rows] == ["fedacg", "fedavg"]
    assert rows[0]["accuracy"] == content(said["run"])["runs"][0]["accuracy"]
    for name in ("compare.png", "compare.md", "compare.tex"):
        assert (place / "reported" / name).stat().st_size > 0


def test_report_of_a_comparison_repeats_it(said: dict[str, Answer]) -> None:
    assert content(said["report of a comparison"]) == content(said["compare"])


def test_one_run_given_twice_is_not_two_seeds(said: dict[str, Answer]) -> None:
    answer = said["report twice"]
    assert answer.returncode == 2 or [row["seeds"] for row in content(answer)["methods"]] == [1]


def test_runs_of_different_scenarios_are_not_seeds_of_one(said: dict[str, Answer]) -> None:
    assert said["other scenario"].returncode == 0, said["other scenario"].stderr
    answer = said["report mixed"]
    assert answer.returncode == 2 or all(row["seeds"] == 1 for row in content(answer)["methods"])


# ── scenario files ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_written_scenario_is_the_same_run_again(said: dict[str, Answer], place: Path) -> None:
    assert content(said["again"])["runs"][0]["name"] == "fedacg"
    assert headway.scenario(place / "again/scenario.toml") == headway.scenario(place / "ran")
    assert (place / "again/scenario.toml").read_text() == (place / "ran/scenario.toml").read_text()
    assert round_lines(place / "again") == round_lines(place / "ran")


def test_every_setting_has_a_flag(said: dict[str, Answer]) -> None:
    assert said["help"].returncode == 0
    flags = set(re.findall(r"--[a-z-]+", said["help"].stdout))
    for setting in dataclasses.fields(Scenario):
        if setting.name != "method":
            assert "--" + setting.name.replace("_", "-") in flags
    assert {"--no-deterministic", "--no-stop-at-target", "--scenario", "--out", "--json", "--quiet"} <= flags
    assert "--method" not in flags


# ── the catalogue ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_methods_in_json(said: dict[str, Answer]) -> None:
    listed = content(said["methods"])
    assert [entry["name"] for entry in listed] == list(METHODS)
    for entry in listed:
        assert {"equations", "arguments", "down", "up", "client_state", "server_memory"} <= set(entry)
        assert "θ" in entry["equations"]


def test_show_a_method(said: dict[str, Answer]) -> None:
    page = said["show"].stdout
    assert said["show"].returncode == 0
    for words in ("φ = θ + λm ; f + β/2 ‖w − φ‖² ; m ← λm + Δ ; θ ← θ + m", "Kim et al.", "CVPR 2024"):
        assert words in page
    assert re.search(r"lam = 0\.85\s+0 ≤ lam < 1", page)
    assert re.search(r"beta = 0\.01\s+0 ≤ beta", page)
    for slot in (r"broadcast\s+lookahead", r"objective\s+.*proximal", r"local\s+sgd", r"server\s+momentum", r"wire\s"):
        assert re.search(slot, page)
    assert "down 1" in page


def test_show_a_sum_of_methods(said: dict[str, Answer]) -> None:
    page = said["show sum"].stdout
    assert said["show sum"].returncode == 0
    assert re.search(r"broadcast\s+lookahead\(lam=0\.9\)", page)
    assert re.search(r"objective\s+.*proximal", page)
    assert re.search(r"server\s+momentum\(momentum=0\.9", page)
    assert re.search(r"lam = 0\.9\b", page), "the arguments are those given, not those shipped"


def test_version(said: dict[str, Answer]) -> None:
    assert said["version"].stdout == f"headway {headway.__version__}\n"


def test_no_command_is_the_help_and_no_complaint(said: dict[str, Answer]) -> None:
    for command in ("run", "compare", "resume", "export", "report", "methods", "show"):
        assert re.search(rf"\b{command}\b", said["nothing"].stdout)
    assert said["nothing"].stderr == ""


@pytest.mark.parametrize("command", ["methods", "show fedacg"])
def test_a_terminal_without_greek_letters_is_no_crash(command: str, tmp_path: Path) -> None:
    answer = called(tmp_path, command, encoding="cp1252")
    assert "Traceback" not in answer.stderr
    assert answer.returncode == 0
    assert "fedacg" in answer.stdout


# ── Ctrl-C and resume ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_finished_run_or_comparison_says_so(said: dict[str, Answer]) -> None:
    for name, folder in (("resume", "ran"), ("resume comparison", "compared")):
        assert said[name].returncode == 0, said[name].stderr
        assert f"{folder} is finished" in said[name].stderr
        assert "headway:" not in said[name].stdout


def interrupted(folder: Path, command: str, watched: str) -> Answer:
    """Start a command, and send it Ctrl-C once `watched` holds two rounds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", *command.split()],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with process:
        path = folder / watched
        while process.poll() is None and not (path.is_file() and path.read_bytes().count(b"\n") >= 2):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    return Answer(process.args, process.returncode, out, err)


def stopped_line(answer: Answer, folder: str) -> None:
    assert answer.returncode == 130, answer.stderr
    assert answer.stderr.splitlines()[-1].endswith(f"headway resume {folder}")
    assert "Traceback" not in answer.stderr


def test_ctrl_c_and_resume_are_as_if_nothing_had_happened(tmp_path: Path) -> None:
    command = f"run fedacg {REPEATED} --out"
    called(tmp_path, f"{command} whole")
    answer = interrupted(tmp_path, f"{command} stopped", "stopped/rounds.jsonl")
    stopped_line(answer, "stopped")
    assert "headway: stopping after this round" in answer.stderr
    assert answer.stdout == ""
    assert 2 <= len(round_lines(tmp_path / "stopped")) < 200
    assert not (tmp_path / "stopped/summary.json").exists()

    resumed = called(tmp_path, "resume stopped --json")
    assert content(resumed)["runs"][0]["rounds"] == 200
    assert round_lines(tmp_path / "stopped") == round_lines(tmp_path / "whole")
    for name in ("server-0000200.safetensors", "manifest.json"):
        stopped, whole = (tmp_path / run / "checkpoint" / name for run in ("stopped", "whole"))
        assert stopped.read_bytes() == whole.read_bytes()


def test_ctrl_c_in_a_comparison_and_resume(tmp_path: Path) -> None:
    command = f"compare fedavg fedacg {REPEATED} --json --quiet --out"
    whole = called(tmp_path, f"{command} whole")
    answer = interrupted(tmp_path, f"{command} stopped", "stopped/fedacg/seed-0/rounds.jsonl")
    stopped_line(answer, "stopped")
    assert answer.stdout == ""
    assert (tmp_path / "stopped/fedavg/seed-0/summary.json").is_file()
    assert len(round_lines(tmp_path / "stopped/fedacg/seed-0")) < 200

    resumed = content(called(tmp_path, "resume stopped --json --quiet"))["methods"]
    for row in [*resumed, *(expected := content(whole)["methods"])]:
        assert row.pop("folders")  # the one thing in which they differ
    assert list(map(timeless, resumed)) == list(map(timeless, expected))
    for run in ("fedavg/seed-0", "fedacg/seed-0"):
        assert round_lines(tmp_path / "stopped" / run) == round_lines(tmp_path / "whole" / run)
    assert (tmp_path / "stopped/compare.png").is_file()


def test_ctrl_c_before_there_is_a_folder_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headway.runs.start.build", stop)
    monkeypatch.setattr(sys, "argv", ["headway", "run", "fedavg", "--out", str(tmp_path / "early")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert not (tmp_path / "early").exists()
    assert "stopped" in (line := capsys.readouterr().err)
    assert "resume" not in line


def test_a_deterministic_run_does_not_depend_on_which_executor_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` measures; under --deterministic the stopwatch must not decide the bits."""
    little = Scenario(model="mlp", rounds=2, clients=20, steps=2, deterministic=True, device="cpu")
    losses = []
    for fastest in ("batched", "serial"):
        monkeypatch.setattr(selection, "_seconds", lambda hand, *_, fastest=fastest: float(hand.name != fastest))
        losses.append([record["train_loss"] for record in headway.simulate("fedavg", little).records])
    assert losses[0] == losses[1]
