"""Claims: runs kept without what only a resume needs, and the ones in results/ give the tables beside them."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from command_line import printed
from headway.errors import UserError
from headway.papers import table
from headway.papers.figures.draw import draw_figure
from headway.papers.items import preset
from headway.papers.plan import Plan, plan
from headway.papers.saved_runs import find_runs
from headway.runs import records
from headway.runs.files import write_json
from headway.scenario import scenario as scenario_of

ITEM = "fednag/figure-4b"
RESULTS = Path(__file__).parents[1] / "results"
CLAIMS = sorted(note.parent for note in RESULTS.rglob("reproduce.json"))


def runs_in(folder: Path, row: str, commit: str, accuracy: float, seed: int = 0, rounds: int = 250) -> Path:
    """A folder as `reproduce` leaves it, with one run of a few records; further ones may be added."""
    wanted = plan(preset(ITEM), rows=[row], seeds=seed + 1).runs[seed]
    kept = folder / "mnist-iid-4x4" / row / f"seed-{seed}"
    (kept / "checkpoint").mkdir(parents=True)
    (kept / "checkpoint" / "clients.rows").write_bytes(b"rows")
    (kept / "split.npz").write_bytes(b"split")
    (kept / "scenario.toml").write_text(wanted.scenario.changed(data_dir="/my/data").as_toml(), encoding="utf-8")
    lines = [
        {"round": n, "accuracy": accuracy, "accuracy_smoothed": accuracy, "global_loss": 1 / n, "loss": 2 / n}
        for n in (1, 100, 250)
        if n <= rounds
    ]
    (kept / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_json(kept / "summary.json", {"finished": rounds == 250})
    about = {"scale": "full", "command": f"make {commit}", "commit": commit, "environment": {"hardware": row}}
    write_json(folder / "reproduce.json", {"seeds": seed + 1, **about})
    return folder


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def claimed(*arguments: str | Path) -> str:
    return printed("reproduce", ITEM, *map(str, arguments), "--format", "csv")


def numbers(told: str) -> dict[str, dict[str, str]]:
    """The lines of a table as CSV, by row; the first measure of each."""
    lines = list(csv.DictReader(told.splitlines()))
    return {line["row"]: line for line in reversed(lines)}


def note(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "reproduce.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def test_a_claim_gathers_runs_of_several_folders_at_once_or_one_after_another(tmp_path: Path) -> None:
    first, second = runs_in(tmp_path / "a", "fednag", "one", 0.9), runs_in(tmp_path / "b", "csgd", "two", 0.8)
    claim, at_once = tmp_path / "results", tmp_path / "again"
    printed("reproduce", ITEM, "--from", str(first), "--claim", str(claim))
    told = printed("reproduce", ITEM, "--from", str(second), "--claim", str(claim))
    assert "fednag" in told
    assert "csgd" in told
    names = ("rounds.json.xz", "scenario.toml", "summary.json")
    kept = [f"mnist-iid-4x4/{row}/seed-0/{name}" for row in ("csgd", "fednag") for name in names]
    with Image.open(claim / "figure.png") as picture:
        assert picture.mode == "P", "a picture that is kept has few colours"
    assert files(claim) == sorted([*kept, "figure.png", "reproduce.json", "table.csv", "table.md", "table.tex"])
    assert scenario_of(claim / "mnist-iid-4x4" / "csgd" / "seed-0").data_dir is None
    about = note(claim)
    assert about["rows"] == ["fednag", "csgd"]
    assert about["runs"] == 2
    made = about["made"]
    assert made["mnist-iid-4x4/fednag/seed-0"] == {
        "command": "make one",
        "commit": "one",
        "environment": {"hardware": "fednag"},
    }
    assert made["mnist-iid-4x4/csgd/seed-0"]["command"] == "make two"
    printed("reproduce", ITEM, "--from", str(first), "--from", str(second), "--claim", str(at_once))
    assert {path: (claim / path).read_bytes() for path in files(claim)} == {
        path: (at_once / path).read_bytes() for path in files(at_once)
    }


def test_a_claim_gets_further_seeds_and_loses_none(tmp_path: Path) -> None:
    claim = tmp_path / "results"
    claimed("--from", runs_in(tmp_path / "a", "fednag", "one", 0.5), "--claim", claim)
    claimed("--from", runs_in(tmp_path / "b", "fednag", "two", 0.7, seed=1), "--claim", claim)
    told = claimed(
        "--from", runs_in(tmp_path / "c", "csgd", "three", 0.8), "--claim", claim
    )  # one seed, not among the others
    found = numbers(told)
    assert {row: line["seeds"] for row, line in found.items()} == {"fednag": "2", "csgd": "1"}
    assert note(claim)["seeds"] == 2
    assert numbers(claimed("--from", claim)) == found


def test_the_command_of_a_run_that_nobody_wrote_down_is_not_invented(tmp_path: Path) -> None:
    source = runs_in(tmp_path / "a", "fednag", "one", 0.9)
    write_json(source / "reproduce.json", {"commit": "one", "environment": {}})
    claimed("--from", source, "--claim", tmp_path / "results")
    (made,) = note(tmp_path / "results")["made"].values()
    assert made["command"] == "not recorded"


def test_a_claim_of_itself_stays_what_it_is(tmp_path: Path) -> None:
    claim = tmp_path / "results"
    printed("reproduce", ITEM, "--from", str(runs_in(tmp_path / "a", "fednag", "one", 0.9)), "--claim", str(claim))
    before = {path: (claim / path).read_bytes() for path in files(claim)}
    printed("reproduce", ITEM, "--from", str(claim), "--claim", str(claim))
    assert {path: (claim / path).read_bytes() for path in files(claim)} == before


def test_a_claim_is_made_of_runs_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--claim keeps runs that were made before; give their folder with --from"):
        printed("reproduce", ITEM, "--claim", str(tmp_path))
    with pytest.raises(UserError, match="--replace is for runs of a claim"):
        printed("reproduce", ITEM, "--replace")


def test_a_run_of_a_claim_gets_further_rounds_but_no_other_numbers_unless_asked(tmp_path: Path) -> None:
    claim, kept = tmp_path / "results", Path("mnist-iid-4x4/fednag/seed-0")
    first = runs_in(tmp_path / "a", "fednag", "one", 0.9, rounds=100)
    claimed("--from", first, "--claim", claim)
    assert "100 of 250 rounds" in (claim / "table.md").read_text(encoding="utf-8")
    longer = runs_in(tmp_path / "b", "fednag", "two", 0.9)
    claimed("--from", longer, "--claim", claim)
    before = (claim / kept / "rounds.json.xz").read_bytes()
    assert len(records.read(claim / kept / "rounds.jsonl")) == 3

    def refused(source: Path, words: str) -> None:
        with pytest.raises(UserError, match=words):
            claimed("--from", source, "--claim", claim)
        assert (claim / kept / "rounds.json.xz").read_bytes() == before

    refused(first, "has 3 rounds, .* only 2")
    other = runs_in(tmp_path / "c", "fednag", "three", 0.8)
    refused(other, "has other numbers than .* from round 1 on; --replace takes the new ones")
    failed = runs_in(tmp_path / "d", "fednag", "four", 0.9)
    write_json(failed / kept / "summary.json", {"finished": False, "failure": "round 9: no"})
    refused(failed, r"failed \(round 9: no\)")
    bare = runs_in(tmp_path / "e", "fednag", "five", 0.9)
    (bare / "reproduce.json").unlink()
    refused(bare, "no reproduce.json that says where")
    with pytest.raises(UserError, match="are the same run with other numbers from round 1 on; name one of them"):
        claimed("--from", longer, "--from", other)
    (other / kept / "summary.json").unlink()
    claimed("--from", other, "--claim", claim, "--replace")
    assert records.read(claim / kept / "rounds.jsonl")[0]["accuracy"] == 0.8
    assert note(claim)["made"][kept.as_posix()]["commit"] == "three"
    assert not (claim / kept / "summary.json").exists()
    with pytest.raises(UserError, match="leave out --out"):
        claimed("--from", first, "--claim", claim, "--out", tmp_path)


def other_runs(folder: Path, item: Plan, seeds: Mapping[int, Mapping[str, Any]], accuracy: float) -> Path:
    """Runs of an item's first cell that have other settings than it, by seed."""
    for run in item.cells[0].runs:
        if run.scenario.seed in seeds:
            changes = seeds[run.scenario.seed]
            kept = folder / "-".join(map(str, changes.values())).replace(":", "") / f"seed-{run.scenario.seed}"
            kept.mkdir(parents=True)
            (kept / "scenario.toml").write_text(run.scenario.changed(**changes).as_toml(), encoding="utf-8")
            line = {"round": item.runs[0].scenario.rounds, "accuracy": accuracy, "accuracy_smoothed": accuracy}
            line |= {"bytes_down_total": 5, "bytes_up_total": 5}
            (kept / "rounds.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    write_json(folder / "reproduce.json", {"scale": "full", "seeds": len(item.cells[0].runs)})
    return folder


def drawn_otherwise(partition: str) -> str:
    """The other way in which a split with the same parameter is drawn."""
    kind, _, value = partition.partition(":")
    return f"{'authors' if kind == 'dirichlet' else 'dirichlet'}:{value}"


def test_runs_on_another_split_are_marked_and_never_mixed_with_the_item_s(tmp_path: Path) -> None:
    item = plan(preset("fedacg/table-1a"), rows=["fedavg"], data=["cifar10"], seeds=2)
    mine = item.runs[0].scenario.partition
    theirs = drawn_otherwise(mine)
    other = {"partition": theirs}
    folder = other_runs(tmp_path / "a", item, {0: other, 1: other}, 0.5)
    found = find_runs(item, folder)
    assert all(outcome.draw.startswith(theirs) for outcome in found.values())
    (line,) = [one for one in table.plain(item, found) if one["measure"] == "accuracy@1000"]
    assert (line["seeds"], line["measured"]) == (2, 50)
    assert line["draw"].startswith(theirs)
    for text in (table.markdown(item, found), table.latex(item, found)):
        assert re.search(r"fedavg (†|\$\\dagger\$)", text)
        assert f"other split or cohorts: {theirs}" in text
        assert f"the item has {mine}" in text
    words = " ".join(draw_figure(item, found, "curves").get_supxlabel().split())
    assert f"† other split or cohorts: {theirs}" in words
    assert "every curve" in words
    other_runs(tmp_path / "b", item, {1: {"partition": mine}}, 0.7)
    both = find_runs(item, folder, tmp_path / "b")  # one seed on the item's split counts more than two that are not
    assert [(one.scenario.seed, outcome.draw) for one, outcome in both.items()] == [(1, "")]
    assert "†" not in table.markdown(item, both)


def test_a_claim_keeps_runs_on_two_splits_apart(tmp_path: Path) -> None:
    item = plan(preset("fedacg/table-1a"), rows=["fedavg"], data=["cifar10"], seeds=1)
    theirs = {"partition": drawn_otherwise(item.runs[0].scenario.partition)}
    old, new = (
        other_runs(tmp_path / "a", item, {0: theirs}, 0.5),
        other_runs(tmp_path / "b", item, {0: {"seed": 0}}, 0.7),
    )
    claim = tmp_path / "results"
    for source, marked in ((old, True), (new, False)):
        printed("reproduce", "fedacg/table-1a", "--from", str(source), "--rows", "fedavg", "--claim", str(claim))
        assert ("†" in (claim / "table.md").read_text(encoding="utf-8")) == marked
    assert len(list(claim.rglob("scenario.toml"))) == note(claim)["runs"] == 2
    printed("reproduce", "fedacg/table-1a", "--from", str(claim), "--claim", str(claim))
    assert len(list(claim.rglob("scenario.toml"))) == 2


def test_a_method_of_another_form_is_marked_and_other_arguments_are_another_run(tmp_path: Path) -> None:
    item = plan(preset("fedacg/table-1a"), rows=["fedavgm"], data=["cifar10"], seeds=1)
    asked = item.runs[0].method
    form = "fedavgm:momentum=0.4" if "rate_ratio" in asked else "fedavgm:momentum=0.4,rate_ratio=true"
    found = find_runs(item, other_runs(tmp_path / "a", item, {0: {"method": form}}, 0.5))
    assert f"§ other form: {form}; the item has {asked}" in table.markdown(item, found)
    with pytest.raises(UserError, match="has no run of fedacg/table-1a"):
        find_runs(item, other_runs(tmp_path / "b", item, {0: {"method": "fedavgm:momentum=0.9"}}, 0.5))


@pytest.mark.parametrize("folder", CLAIMS, ids=lambda folder: folder.relative_to(RESULTS).as_posix())
def test_a_claim_gives_its_table(folder: Path) -> None:
    """As `headway reproduce PAPER/ITEM --from results/PAPER/ITEM` prints it today."""
    item = folder.relative_to(RESULTS).as_posix()
    assert note(folder)["item"] == item
    assert all(made["commit"] and made["command"] for made in note(folder)["made"].values())
    assert printed("reproduce", item, "--from", str(folder), "--format", "markdown") == (folder / "table.md").read_text(
        encoding="utf-8"
    )
    scenarios = list(folder.rglob("scenario.toml"))
    assert {file.parent.relative_to(folder).as_posix() for file in scenarios} == note(folder)["made"].keys()
    for scenario in scenarios:
        assert scenario_of(scenario).data_dir is None


def test_there_are_claims() -> None:
    assert {folder.relative_to(RESULTS).as_posix() for folder in CLAIMS} >= {"fedacg/table-1a", "fednag/figure-4b"}


def test_the_claims_stay_small() -> None:
    """What git tracks or, where there is no git, what is there."""
    asked = subprocess.run(["git", "ls-files", "-z", "."], cwd=RESULTS, capture_output=True, text=True, check=False)
    tracked = [RESULTS / name for name in asked.stdout.split("\0") if name]
    there = [path for path in tracked or RESULTS.rglob("*") if path.is_file()]
    assert there
    assert sum(path.stat().st_size for path in there) < 12 * 2**20
    assert not [path for path in there if path.suffix == ".jsonl"]
