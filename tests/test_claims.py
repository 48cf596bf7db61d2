"""Claims: runs kept without what only a resume needs, and the ones in results/ give the tables beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headway.cli import main as cli
from headway.errors import UserError
from headway.papers.plan import plan
from headway.papers.preset import preset
from headway.runs.files import write_json
from headway.scenario import scenario as scenario_of

ITEM = "fednag/figure-4b"
RESULTS = Path(__file__).parents[1] / "results"
CLAIMS = sorted(note.parent for note in RESULTS.rglob("reproduce.json"))


def said(*arguments: str) -> str:
    answer = CliRunner().invoke(cli.app, ["reproduce", *arguments], catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.stdout


def runs_in(folder: Path, row: str, commit: str, accuracy: float) -> Path:
    """A folder as `reproduce` leaves it, with one run of a few rounds."""
    wanted = plan(preset(ITEM), rows=[row]).runs[0]
    kept = folder / "mnist-iid-4x4" / row / "seed-0"
    (kept / "checkpoint").mkdir(parents=True)
    (kept / "checkpoint" / "clients.rows").write_bytes(b"rows")
    (kept / "split.npz").write_bytes(b"split")
    (kept / "scenario.toml").write_text(wanted.scenario.changed(data_dir="/my/data").as_toml(), encoding="utf-8")
    other = dict.fromkeys(("steps", "bytes_down_total", "bytes_up_total", "seconds_training", "seconds_evaluation"), 1)
    scores = {"accuracy": accuracy, "accuracy_smoothed": accuracy}
    lines = [{"round": n, **scores, "global_loss": 1 / n, **other} for n in range(1, 251)]
    (kept / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_json(kept / "summary.json", {"finished": True})
    write_json(folder / "reproduce.json", {"scale": "full", "commit": commit, "environment": {"hardware": row}})
    return folder


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def note(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "reproduce.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def test_a_claim_gathers_runs_of_several_folders(tmp_path: Path) -> None:
    first, second = runs_in(tmp_path / "a", "fednag", "one", 0.9), runs_in(tmp_path / "b", "csgd", "two", 0.8)
    claim = tmp_path / "results"
    said(ITEM, "--from", str(first), "--claim", str(claim))
    told = said(ITEM, "--from", str(second), "--claim", str(claim))
    assert "fednag" in told
    assert "csgd" in told
    kept = [f"mnist-iid-4x4/{row}/seed-0/{name}" for row in ("csgd", "fednag") for name in ("rounds.jsonl",)]
    assert files(claim) == sorted(
        [
            *kept,
            *(path.replace("rounds.jsonl", "scenario.toml") for path in kept),
            *(path.replace("rounds.jsonl", "summary.json") for path in kept),
            *("figure.png", "reproduce.json", "table.csv", "table.md", "table.tex"),
        ]
    )
    assert scenario_of(claim / "mnist-iid-4x4" / "csgd" / "seed-0").data_dir is None
    about = note(claim)
    assert about["rows"] == ["fednag", "csgd"]
    assert about["runs"] == 2
    made = about["made"]
    assert made["mnist-iid-4x4/fednag/seed-0"] == {"commit": "one", "environment": {"hardware": "fednag"}}
    assert made["mnist-iid-4x4/csgd/seed-0"] == {"commit": "two", "environment": {"hardware": "csgd"}}


def test_a_claim_of_itself_stays_what_it_is(tmp_path: Path) -> None:
    claim = tmp_path / "results"
    said(ITEM, "--from", str(runs_in(tmp_path / "a", "fednag", "one", 0.9)), "--claim", str(claim))
    before = {path: (claim / path).read_bytes() for path in files(claim)}
    said(ITEM, "--from", str(claim), "--claim", str(claim))
    assert {path: (claim / path).read_bytes() for path in files(claim)} == before


def test_a_claim_is_made_of_runs_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--claim keeps runs that are there; give their folder with --from"):
        said(ITEM, "--claim", str(tmp_path))


def test_a_claim_is_replaced_by_the_same_run_with_more_rounds_only(tmp_path: Path) -> None:
    claim, kept = tmp_path / "results", Path("mnist-iid-4x4/fednag/seed-0")
    first = runs_in(tmp_path / "a", "fednag", "one", 0.9)
    said(ITEM, "--from", str(first), "--claim", str(claim))
    before = (claim / kept / "rounds.jsonl").read_text(encoding="utf-8")

    def refused(source: Path, words: str) -> None:
        with pytest.raises(UserError, match=words):
            said(ITEM, "--from", str(source), "--claim", str(claim))
        assert (claim / kept / "rounds.jsonl").read_text(encoding="utf-8") == before

    shorter = runs_in(tmp_path / "b", "fednag", "two", 0.9)
    (shorter / kept / "rounds.jsonl").write_text(before.splitlines()[0] + "\n", encoding="utf-8")
    refused(shorter, "has 250 rounds, .* only 1")
    failed = runs_in(tmp_path / "c", "fednag", "three", 0.9)
    write_json(failed / kept / "summary.json", {"finished": False, "failure": "round 9: no"})
    refused(failed, r"failed \(round 9: no\)")
    bare = runs_in(tmp_path / "d", "fednag", "four", 0.9)
    (bare / "reproduce.json").unlink()
    refused(bare, "has no reproduce.json that says where")
    (first / kept / "summary.json").unlink()
    said(ITEM, "--from", str(first), "--claim", str(claim))
    assert not (claim / kept / "summary.json").exists()
    with pytest.raises(UserError, match="leave out --out"):
        said(ITEM, "--from", str(first), "--claim", str(claim), "--out", str(tmp_path))


@pytest.mark.parametrize("folder", CLAIMS, ids=lambda folder: folder.relative_to(RESULTS).as_posix())
def test_a_claim_gives_its_table(folder: Path) -> None:
    """As `headway reproduce PAPER/ITEM --from results/PAPER/ITEM` prints it today."""
    item = folder.relative_to(RESULTS).as_posix()
    assert note(folder)["item"] == item
    assert all(made["commit"] for made in note(folder)["made"].values())
    assert said(item, "--from", str(folder), "--format", "markdown") == (folder / "table.md").read_text(
        encoding="utf-8"
    )
    for scenario in folder.rglob("scenario.toml"):
        assert scenario_of(scenario).data_dir is None


def test_there_are_claims() -> None:
    assert {folder.relative_to(RESULTS).as_posix() for folder in CLAIMS} >= {"fedacg/table-1a", "fednag/figure-4b"}
