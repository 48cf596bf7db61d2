"""What goes wrong at a site or on the way: one line with a code each, and nothing is lost or silently wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
from torch import Tensor, nn

from conftest import group_norm, norm_free
from deployed import DEPLOYABLE, SIZES, Deployment, assert_same, network
from headway.deploy import binding
from headway.deploy.apps import SiteApp, SitePlace
from headway.deploy.deployable import row_of, table
from headway.deploy.records import Record
from headway.deploy.roster import in_order
from headway.deploy.site import answer
from headway.deploy.terms import Terms
from headway.deploy.transport import Faults
from headway.errors import Diverged, MachineError, UserError
from headway.methods.method import Method
from headway.methods.slots import Step
from headway.methods.spelling import method
from headway.random import built
from headway.report.page.write import page
from headway.runs.export import export
from headway.runs.load import load_run, recorded
from headway.runs.resume import resume
from headway.runs.roster import read as read_roster
from headway.runs.study import load_study
from headway.vectors import Vector


class Told(RuntimeError):
    """An exception whose text must not travel."""


def failing() -> object:
    raise Told("the path is /secret/patients.csv")


def changed(data: Any) -> Any:
    """The data with one number of one sample in its middle changed by a little."""
    x, y = np.array(data[0]), data[1]
    x[len(x) // 2, 3] = np.nextafter(x[len(x) // 2, 3], np.inf)
    return x, y


# ── census ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": lambda: built(group_norm, 7, "test")}, "OTHER_MODEL: site 's2' has another model: its digest is"),
        ({"classes": 4}, "OTHER_SAMPLES: there are 4 classes at the site and 3 at the server"),
        ({"data": (np.zeros((4, 5)), np.zeros(4, int))}, "FAILED|OTHER_SAMPLES"),
        ({"data": (np.zeros((4, 6)), np.full(4, 3))}, "OTHER_SAMPLES: a label at the site is not one of the 3 classes"),
        ({"data": failing}, r"DATA_UNREADABLE: the data cannot be read \(Told\)"),
        ({"data": "nowhere.safetensors"}, r"DATA_UNREADABLE: the data cannot be read \(UserError\)"),
    ],
    ids=["model", "classes", "shape", "label", "raises", "missing"],
)
def test_a_site_that_does_not_fit_is_refused_by_name_before_anything_runs(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    deployment = Deployment(tmp_path)
    deployment.apps["s2"] = replace(deployment.apps["s2"], **change)
    with pytest.raises(UserError, match=rf"3 of 4 sites are there \(s0, s1, s3\); refused: .*({says})") as refusal:
        deployment.run()
    assert "secret" not in str(refusal.value)
    assert not deployment.out.exists()


def test_a_site_without_a_target_that_counts_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """One whose first two samples do not count takes part: others of it do."""

    def model() -> nn.Module:
        return nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))

    deployment = Deployment(tmp_path, settings={"task": "tokens"}, model=model)
    draw = np.random.default_rng(0)
    texts = [(draw.integers(0, 7, (size, 5)), draw.integers(0, 7, (size, 5))) for size in SIZES]
    texts[1][1][:2] = -100
    texts[2][1][:] = -100
    deployment.data = {"clients": texts, "test": texts[0]}
    for app, one in zip(list(deployment.apps), texts, strict=True):
        deployment.apps[app] = replace(deployment.apps[app], data=one)
    says = r"OTHER_SAMPLES: no target at the site counts: all of them are filler \(-100\), .* \(site 's2'\)"
    with pytest.raises(UserError, match=rf"3 of 4 sites are there \(s0, s1, s3\); refused: .*{says}"):
        deployment.run()
    assert len(deployment.run(sites=3).records) == 4


@dataclass(frozen=True)
class scaled:
    """g · s, a rule of a user's own."""

    share: float

    def direction(self, w: Vector, gradient: Vector, memory: Any, step: Step) -> tuple[Vector, Any]:
        return gradient * self.share, memory


def test_a_method_of_the_users_own_is_the_same_on_both_sides(tmp_path: Path) -> None:
    own = [Method(local=scaled(share), name="scaled") for share in (0.5, 0.25)]
    deployment = Deployment(tmp_path, own[0])
    with pytest.raises(UserError, match="OTHER_METHOD: the method 'scaled' is neither in the catalogue nor given"):
        deployment.run()
    deployment.apps = {name: replace(app, method=own[name == "s3"]) for name, app in deployment.apps.items()}
    with pytest.raises(UserError, match=r"OTHER_METHOD: site 's3' has another method: its digest is [0-9a-f]{12}, the"):
        deployment.run()
    deployment.apps["s3"] = replace(deployment.apps["s3"], method=own[0])
    assert_same(deployment.run(), deployment.replayed())


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment(tmp_path)
    monkeypatch.setattr(binding, "VERSION", "9.9")
    with pytest.raises(UserError, match=r"OTHER_VERSION: headway is .* at the site and 9\.9 at the server"):
        deployment.run()


def test_two_sites_of_one_name_are_refused(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    twin = dict(deployment.transport.sites)
    twin["node-s3"] = twin["node-s1"]
    deployment.transport.sites = twin
    with pytest.raises(UserError, match="NAME_TAKEN: two sites are called 's1'"):
        deployment.run()


def test_too_few_sites_are_waited_for_and_then_named(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    deployment.transport.away |= {"node-s1"}
    with pytest.raises(UserError, match=r"3 of 4 sites are there \(s0, s2, s3\) after 30 seconds"):
        deployment.run(wait=30.0)
    assert 30 <= deployment.clock.at < 31


def test_a_site_that_joins_later_is_refused_with_a_sentence_and_one_that_is_back_takes_part(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    new = SiteApp(network("norm_free"), deployment.data["test"])
    sites = dict(deployment.transport.sites)
    sites["late"] = lambda asked: answer(new, SitePlace("s9", tmp_path / "s9"), asked)
    site = sites["node-s2"]

    def moving(asked: Record) -> Record:
        """Site s2, which has a new address from the second round on, when s9 comes, too."""
        found = site(asked)
        if asked.kind == "round" and asked.values["round"] == 1:
            deployment.transport.away |= {"node-s2"}
            deployment.transport.sites = {**sites, "node-elsewhere": site}
        return found

    deployment.transport.sites = {
        name: moving if name == "node-s2" else one for name, one in sites.items() if name != "late"
    }
    result = deployment.run()
    assert [len(record["clients"]) for record in result.records] == [4, 4, 4, 4]
    assert any("LATE_SITE: site 's9' came after the census" in line for line in deployment.told)
    assert_same(result, deployment.replayed())


def test_a_site_that_was_not_reached_or_was_put_right_is_asked_again(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, faults=Faults(broken=frozenset({("node-s1", 0)})))
    deployment.run()
    site, away = deployment.transport.sites["node-s3"], deployment.transport.away
    good, rounds = deployment.apps["s3"], list[int]()

    def seen(asked: Record) -> Record:
        """Site s0, at whose rounds the node of s3 goes away and comes back."""
        if asked.kind == "round":
            rounds.append(int(asked.values["round"]))
            away.symmetric_difference_update({"node-s3"} if rounds[-1] in (5, 6) else ())
            deployment.apps["s3"] = good
        return first(asked)

    first = deployment.transport.sites["node-s0"]
    deployment.apps["s3"] = replace(good, classes=7)
    deployment.transport.sites = {**deployment.transport.sites, "node-s0": seen, "node-s3": site}
    deployment.settings = {"rounds": 7}
    result = deployment.run(resume=True)
    assert [list(record["clients"]) for record in result.records[4:]] == [[0, 1, 2], [0, 1, 2], [0, 1, 2, 3]]
    assert_same(result, deployment.replayed())


def test_nobody_takes_the_name_of_a_site_that_is_there(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    twin = answer_as(deployment, "s1", tmp_path / "twin")
    sites = dict(deployment.transport.sites)
    first = sites["node-s0"]

    def seen(asked: Record) -> Record:
        if asked.kind == "round":
            deployment.transport.sites = {**sites, "node-s0": seen, "stranger": twin}
        return first(asked)

    deployment.transport.sites = {**sites, "node-s0": seen}
    result = deployment.run()
    assert [len(record["clients"]) for record in result.records] == [4] * 4
    assert any("was refused: " in line for line in deployment.told)
    assert_same(result, deployment.replayed())


def answer_as(deployment: Deployment, name: str, state: Path) -> Callable[[Record], Record]:
    """A second machine with the data and the state folder of a site."""

    def site(asked: Record) -> Record:
        shutil.copytree(deployment.state(name), state, dirs_exist_ok=True)
        return answer(deployment.apps[name], SitePlace(name, state), asked)

    return site


# ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_changed_sample_is_seen_and_nothing_of_it_leaves_the_site(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "scaffold", settings={"rounds": 2})
    deployment.run()
    app = deployment.apps["s1"]
    deployment.apps["s1"] = replace(app, data=changed(app.data))
    deployment.settings = {"rounds": 4}
    with pytest.raises(UserError, match=r"3 of 4 sites are there .*DATA_CHANGED: the data is not what this run began"):
        deployment.run(resume=True, quorum=4)
    three = deployment.run(resume=True)
    assert [list(record["clients"]) for record in three.records] == [[0, 1, 2, 3]] * 2 + [[0, 2, 3]] * 2
    assert three.records[3]["absent"] == [{"client": 1, "cause": "UNREACHABLE: site 's1' is not connected"}]
    events = [json.loads(line) for line in (deployment.out / "events.jsonl").read_text().splitlines()]
    assert [(one["round"], one["site"], one["code"]) for one in events] == [(3, "s1", "DATA_CHANGED")]
    deployment.settings = {"rounds": 5}
    accepted = deployment.run(resume=True, accept_data=("s1",))
    assert list(accepted.records[4]["clients"]) == [0, 1, 2, 3]
    assert read_roster(deployment.out).accepted == ("s1",)


def test_a_fingerprint_is_of_all_samples_and_of_the_sites_own_salt(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    app = deployment.apps["s0"]
    deployment.apps |= {"s1": app}
    deployment.run()
    prints = [member.fingerprint for member in read_roster(deployment.out).members]
    assert len(set(prints)) == 4  # s0 and s1 have the same samples
    assert all(
        deployment.state(name).joinpath("salt").read_bytes().hex() not in repr(deployment.seen) for name in ("s0", "s1")
    )


def test_data_is_read_in_the_census_alone(tmp_path: Path) -> None:
    deployment, reads = Deployment(tmp_path), list[str]()
    for name, app in deployment.apps.items():
        deployment.apps[name] = replace(app, data=lambda name=name, data=app.data: [reads.append(name), data][1])
    result = deployment.run()
    assert reads == ["s0", "s1", "s2", "s3"]
    for path in deployment.state("s0").glob("data/*"):
        path.unlink()
    deployment.settings = {"rounds": 5}
    again = deployment.run(resume=True)
    assert len(again.records) == 5
    assert_same(again, deployment.replayed())
    assert len(result.records) == 4


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_text_of_an_exception_stays_in_the_sites_log(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.failing = norm_free(), False

        def forward(self, x: Tensor) -> Tensor:
            if self.failing and self.training:
                raise Told("patient Smith, row 17")
            return self.net(x)  # type: ignore[no-any-return]

    deployment = Deployment(tmp_path, model=Net)
    own = built(Net, 0, "model")
    deployment.apps["s2"] = replace(deployment.apps["s2"], model=own)
    sites = dict(deployment.transport.sites)

    def breaking(asked: Record) -> Record:
        own.failing = asked.kind == "round" and asked.values["round"] == 2
        return sites["node-s2"](asked)

    deployment.transport.sites = {**sites, "node-s2": breaking}
    result = deployment.run()
    assert result.records[1]["absent"] == [{"client": 2, "cause": "FAILED: Told at the site; its log has the text"}]
    everything = repr([(dict(one.values), sorted(one.arrays)) for _, _, one in deployment.seen])
    assert "Smith" not in everything + "".join(path.read_text() for path in deployment.out.glob("*.json*"))
    assert "patient Smith, row 17" in (deployment.state("s2") / "site.log").read_text()


@pytest.mark.parametrize("on_failure", ["stop", "skip"])
def test_a_site_that_diverges_ends_the_run_or_is_left_out(tmp_path: Path, on_failure: str) -> None:
    settings = {"on_failure": on_failure, "clip": 0.0}
    deployment = Deployment(tmp_path, settings=settings, model=lambda: nn.Linear(6, 3))
    x, y = deployment.apps["s1"].data  # type: ignore[misc]
    deployment.apps["s1"] = replace(deployment.apps["s1"], data=(np.asarray(x) * 1e300, y))
    if on_failure == "stop":
        with pytest.raises(Diverged, match=r"round \d, site 's1': the loss or the update is not a finite number"):
            deployment.run()
        return
    result = deployment.run()
    left = [record for record in result.records if record.get("absent")]
    assert left
    assert left[0]["absent"][0]["cause"].startswith("DIVERGED: ")  # type: ignore[typeddict-item]


def test_too_few_uploads_make_a_round_void_and_three_in_a_row_stop_the_run(tmp_path: Path) -> None:
    lost = {(f"node-s{i}", number) for i in (0, 1, 2) for number in (2, 3)}  # round 2 is asked three times
    deployment = Deployment(
        tmp_path, "scaffold", terms=Terms(sites=4, deadline=60.0, quorum=3), faults=Faults(lost_answers=frozenset(lost))
    )
    result = deployment.run()
    assert [record.get("void", 0) for record in result.records] == [0, 2, 0, 0]
    assert sum("round 2 is void: 1 uploads, and the quorum is 3" in line for line in deployment.told) == 2
    assert_same(result, deployment.replayed())
    deployment.transport.away |= {"node-s0", "node-s1"}
    deployment.settings = {"rounds": 5}
    with pytest.raises(UserError, match=r"2 of 3 sites are there \(s2, s3\)"):
        deployment.run(resume=True, wait=5.0)
    deployment.transport.away.clear()
    broken = frozenset((node, number) for node in ("node-s0", "node-s1") for number in range(8, 11))
    deployment.transport.faults = Faults(broken=broken)
    with pytest.raises(MachineError, match=r"round 5 is void: 2 uploads, .*3 times in a row, resume when the sites"):
        deployment.run(resume=True)
    deployment.transport.faults = Faults()
    assert_same(deployment.run(resume=True), deployment.replayed())


def test_a_deadline_ends_the_waiting(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, faults=Faults(lost_asks=frozenset({("node-s0", 1)})))
    result = deployment.run(deadline=7.0)
    assert result.records[0]["seconds_waiting"] == pytest.approx(7.0)  # type: ignore[typeddict-item]
    assert result.records[0]["absent"] == [{"client": 0, "cause": "LOST: nothing came until the deadline"}]
    events = [json.loads(line) for line in (deployment.out / "events.jsonl").read_text().splitlines()]
    assert [(one["round"], one["site"], one["code"]) for one in events] == [(1, "s0", "LOST")]


# ── the folder ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_folder_of_a_deployment_is_a_run_folder(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "scaffold", "batch_norm_dropout", settings={"keep_best": True})
    result = deployment.run()
    assert recorded(deployment.out, verified=True).summary == result.summary
    found = load_run(deployment.out, model=network("batch_norm_dropout")())
    for mine, theirs in zip(found.model.state_dict().values(), result.model.state_dict().values(), strict=True):
        assert bool((mine == theirs).all())
    text = page(load_study([deployment.out]))
    assert all(f"<td>s{site}</td><td>{size}</td><td>4</td><td>4</td>" in text for site, size in enumerate(SIZES))
    for best in (False, True):
        written = export(deployment.out, tmp_path / f"model-{best}.safetensors", best=best)
        expected = (result.best_model if best else result.model).state_dict()
        tensors = safetensors.torch.load_file(written)
        assert tensors.keys() == expected.keys()
        assert all(bool((tensors[name] == leaf).all()) for name, leaf in expected.items())
    status = json.loads((deployment.out / "status.json").read_text())
    assert (status["round"], [site["counted"] for site in status["sites"]]) == (4, [4, 4, 4, 4])
    assert_same(deployment.run(resume=True), result)
    deployment.settings = {"keep_best": True, "rounds": 3}
    with pytest.raises(UserError, match=r"rounds is 3, but .* is a run of 4 rounds; it can be given more, not fewer"):
        deployment.run(resume=True)
    deployment.settings = {"keep_best": True}
    asked = len(deployment.seen)
    with pytest.raises(UserError, match="is already used"):
        deployment.run()
    assert len(deployment.seen) == asked
    deployment.settings = {"rounds": 6, "keep_best": True}
    broken = frozenset((f"node-s{site}", number) for site in range(4) for number in range(7, 20))
    deployment.transport.faults = Faults(broken=broken)
    with pytest.raises(MachineError):
        deployment.run(resume=True)
    with pytest.raises(UserError, match="is a run over sites; go on with it there: headway deploy resume"):
        resume(deployment.out, model=network("batch_norm_dropout")())


def test_a_resume_with_other_settings_is_refused(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, settings={"rounds": 2})
    deployment.run()
    deployment.settings = {"rounds": 3, "rate": 0.2}
    with pytest.raises(UserError, match=r"rate is 0\.2, but .* was run with 0\.1"):
        deployment.run(resume=True)


# ── which methods ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_table_of_methods_follows_from_what_slots_need() -> None:
    rows = {row.name: row for row in table()}
    assert [name for name, row in rows.items() if not row.deployable] == ["csgd", "cnag", "snoo"]
    assert [name for name, row in rows.items() if row.needs_everybody] == ["fednag", "fedac", "scaffnew"]
    assert {name for name, row in rows.items() if row.first_model} == {
        *("gradma", "gradma-w", "moon", "moonm"),
        *("fedinit", "fedlesam"),
    }
    assert {name for name, row in rows.items() if row.sees_each} == {"gradma", "gradma-s"}
    assert {name for name, row in rows.items() if row.keeps_state} >= {
        "scaffold",
        "feddyn",
        "feddc",
        "mifa",
        "gradma-w",
    }
    assert set(DEPLOYABLE) == {name for name, row in rows.items() if row.deployable and not row.needs_everybody}
    assert row_of(method("fedavg+adamw:state=keep")).keeps_state


@pytest.mark.parametrize(
    ("spelled", "settings", "says"),
    [
        ("csgd", {}, "csgd cannot be deployed: it trains on everybody's data in one place"),
        ("fedavg", {"validation": 0.1}, "validation is 0.1, which is for simulations"),
        ("fedavg", {"dropout": 0.1}, "dropout is 0.1, which is for simulations: real sites drop out by themselves"),
        ("fedavg", {"sampling": "replacement"}, "by which a client may be drawn twice"),
        ("fedavg", {"clients": 3}, "clients is a setting of simulations; the sites bring their own data"),
    ],
)
def test_what_cannot_be_deployed_is_refused_before_anybody_is_asked(
    tmp_path: Path, spelled: str, settings: dict[str, object], says: str
) -> None:
    deployment = Deployment(tmp_path, spelled, settings=settings)
    with pytest.raises(UserError, match=says):
        deployment.run()
    assert not deployment.seen


def test_names_with_numbers_are_in_the_order_of_the_numbers() -> None:
    assert in_order(["site-10", "b", "site-2", "a"]) == ["a", "b", "site-2", "site-10"]
