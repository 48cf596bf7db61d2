"""Local models looked at after a run: they are those that it had, and what is measured of them is what it says."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import headway as hw
from command_line import printed
from conftest import NETWORKS, SMALL, experiment, normal, own_problem, refused, unequal_clients
from headway.analysis import accuracies, curvature, written
from headway.analysis.inside import Analysis, analyse_run, loss_on
from headway.analysis.local_models import LocalModels, Model, trained_again
from headway.analysis.similarity import linear_cka
from headway.analysis.surface import Plane, path
from headway.engine.evaluation import evaluate
from headway.engine.ranks import Ranks
from headway.engine.server import GlobalState
from headway.errors import DamagedRun
from headway.papers import local_models
from headway.papers.figures.draw import draw_figure
from headway.papers.items import preset
from headway.papers.plan import plan
from headway.papers.reproduce import Outcome
from headway.random import built
from headway.report.page.write import page
from headway.runs import kept
from headway.runs.driver import drive
from headway.runs.folder import read as read_folder
from headway.runs.job import Job
from headway.runs.observer import Silent
from headway.runs.reserve import reserve
from headway.runs.study import study_of
from headway.trees import leaves_of
from headway.vectors import Vector
from ranks_at_work import on_ranks, returned

KEEPING = SMALL.changed(keep_checkpoints=2, executor="serial", deterministic=True, participation=0.67)


def kept_run(folder: Path, name: str = "fedacg", network: str = "batch_norm_dropout", **changes: Any) -> dict[str, Any]:
    """A run in a folder; the user's own objects, to be given again."""
    own = {"model": built(NETWORKS[network], 7, "test"), **unequal_clients()}
    hw.simulate(name, KEEPING.changed(**changes), out=folder, **own)
    return own


# ── the local models are those of the run ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", [{}, {"batches": "continued"}, {"sampling": "replacement"}, {"dropout": 0.3}])
@pytest.mark.parametrize("name", ["fedacg", "scaffold", "feddyn", "fedavgm+adam:state=keep", "fedacg+fedpaq"])
def test_a_kept_round_trained_again_leads_where_the_run_went(name: str, case: dict[str, Any], tmp_path: Path) -> None:
    """Bit for bit: the model after the round, and the round's diagnostics."""
    own = kept_run(tmp_path / "run", name, rounds=3, **case)
    result = hw.load_run(tmp_path / "run", **own)
    assert kept.rounds(tmp_path / "run") == [2]
    chosen = experiment(name, "batch_norm_dropout", **{**KEEPING.as_dict(), "rounds": 3, **case, "method": name})
    found, outcome = trained_again(chosen, tmp_path / "run", 2, 10)
    state = result.model.state_dict()
    assert all(torch.equal(leaf, state[path]) for path, leaf in {**found.after.w.leaves, **found.after.buffers}.items())
    record = dict(result.records[-1])
    assert record["clients"] == list(outcome.clients)
    assert {key: record[key] for key in outcome.diagnostics} == outcome.diagnostics


def test_what_is_kept_does_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    def train(folder: Path, **together: Any) -> dict[str, bytes]:
        chosen = experiment("scaffold", "batch_norm_dropout", **{**KEEPING.as_dict(), "method": "scaffold"})
        if not together or together["ranks"].rank == 0:
            reserve(folder, chosen.scenario)
        if together:
            together["ranks"].tell({})
        drive(Job(chosen, folder, Silent(), **together))
        return {file.name: file.read_bytes() for file in (folder / kept.FOLDER).iterdir()}

    def work(ranks: Ranks) -> dict[str, bytes]:
        return train(tmp_path / "several", ranks=ranks)

    alone = train(tmp_path / "one")
    assert sorted(alone) == sorted(
        f"round-000000{at}{end}" for at in (2, 3) for end in ("-clients.safetensors", "-server.safetensors", ".json")
    )
    assert returned(on_ranks(2, work))[0] == alone


def test_a_resumed_run_keeps_what_an_uninterrupted_one_keeps(tmp_path: Path) -> None:
    own = kept_run(tmp_path / "whole", "scaffold", rounds=6)
    whole = {file.name: file.read_bytes() for file in (tmp_path / "whole" / kept.FOLDER).iterdir()}

    class Halt:
        def on_round(self, run: hw.Run) -> None:
            if run.round == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hw.simulate("scaffold", KEEPING.changed(rounds=6), out=tmp_path / "cut", callbacks=Halt(), **own)
    hw.resume(tmp_path / "cut", **own)
    assert {file.name: file.read_bytes() for file in (tmp_path / "cut" / kept.FOLDER).iterdir()} == whole


# ── what is measured ─────────────────────────────────────────────────────────────────────────────────────────────────


def in_features(one: np.ndarray, other: np.ndarray) -> float:
    """Kornblith et al. 2019, Eq. 3 as it stands: ‖YᵀX‖²/(‖XᵀX‖ ‖YᵀY‖) of centred features, without Gram matrices."""
    x, y = one - one.mean(0), other - other.mean(0)
    return float(((y.T @ x) ** 2).sum() / np.linalg.norm(x.T @ x) / np.linalg.norm(y.T @ y))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(3, 20), st.integers(1, 12), st.integers(1, 12))
def test_cka_is_that_of_the_formula_in_features(seed: int, samples: int, one: int, other: int) -> None:
    x, y = normal(samples, one, seed=seed), normal(samples, other, seed=seed + 1)
    found = linear_cka(x, y)
    assert found == pytest.approx(in_features(x.numpy(), y.numpy()), abs=1e-10)
    rotation = torch.linalg.qr(normal(one, one, seed=seed + 2)).Q
    assert linear_cka(3 * x @ rotation + 5, y) == pytest.approx(found, abs=1e-10)
    assert linear_cka(x, x @ rotation) == pytest.approx(1, abs=1e-10)


@pytest.fixture(scope="module")
def looked_into(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], Analysis]:
    folder = tmp_path_factory.mktemp("looked") / "run"
    own = kept_run(folder)
    return folder, own, hw.analyse(folder, local_models=3, samples=30, grid=5, eigenvalues=2, **own)


def models_of(folder: Path) -> tuple[Any, LocalModels]:
    chosen = experiment("fedacg", "batch_norm_dropout", **{**KEEPING.as_dict(), "method": "fedacg"})
    return chosen, trained_again(chosen, folder, 3, 3)[0]


def test_the_corners_of_the_surface_have_the_losses_of_their_models(looked_into: Any) -> None:
    """With the statistics of BatchNorm that belong to each, as an evaluation of the model has them."""
    folder, _, found = looked_into
    chosen, models = models_of(folder)
    plane = Plane.through(models.local)
    assert plane is not None
    loss = loss_on(chosen, chosen.test)
    for place, model, name in zip(plane.places, models.local, found.names, strict=True):
        with chosen.arithmetic():
            evaluated = evaluate(chosen, GlobalState(model.w, model.buffers, {})).loss
        assert loss(plane.at(*place)) == pytest.approx(evaluated, abs=1e-12)
        assert found.surface.points[name][2] < 1e-12
        assert found.surface.points[name][:2] == pytest.approx(tuple(place), abs=1e-12)


def test_the_plane_is_flat_between_its_corners(looked_into: Any) -> None:
    """Points and buffers of the middle of two corners are the means of theirs."""
    folder, _, _ = looked_into
    _, models = models_of(folder)
    plane = Plane.through(models.local)
    assert plane is not None
    middle = plane.at(*(plane.places[0] + plane.places[2]) / 2)
    for found, one, other in zip(
        *(leaves_of({"w": m.w, "b": m.buffers}) for m in (middle, models.local[0], models.local[2])), strict=True
    ):
        if found.is_floating_point():
            assert torch.allclose(found, (one + other) / 2, atol=1e-12)
    a, b, away = plane.project(models.server.w)
    back = plane.corners[0].w.plus(a, plane.u).plus(b, plane.v)
    assert float((back - models.server.w).norm()) == pytest.approx(away, abs=1e-12)
    assert float((back - models.server.w).dot(plane.u)) == pytest.approx(0, abs=1e-12)


def test_models_on_a_line_span_no_plane() -> None:
    points = [Model(Vector({"w": torch.tensor([float(at), 2.0 * at], dtype=torch.float64)}), {}) for at in range(3)]
    assert Plane.through(points) is None


def test_a_way_begins_at_the_server_and_passes_what_was_sent(looked_into: Any) -> None:
    folder, _, found = looked_into
    chosen, models = models_of(folder)
    loss = loss_on(chosen, chosen.federation.test.spread(30))
    for name, model in zip(found.names, models.local, strict=True):
        way = found.paths[name]
        assert way.loss[0] == pytest.approx(loss(models.server), abs=1e-12)
        at = int(np.argmin(np.abs(way.distance - way.received)))
        assert way.loss[at] == pytest.approx(loss(models.received), abs=1e-12)
        assert way.loss[-1] == pytest.approx(loss(model), abs=1e-12)
        length = (models.received.w - models.server.w).norm() + (model.w - models.received.w).norm()
        assert way.distance[-1] == pytest.approx(float(length), abs=1e-12)
    same = path(models.server, models.server, models.local[0], loss, 4)
    assert same.received == 0
    assert len(same.loss) == 5


def test_eigenvalues_are_those_of_the_dense_hessian() -> None:
    chosen = experiment("fedavg", "norm_free")
    samples, model = chosen.test, Model(chosen.network.parameters, {})

    def loss(flat: torch.Tensor) -> torch.Tensor:
        x, y = samples.read(slice(None))
        answer = chosen.network.evaluate(model.w.unflat(flat), {}, chosen.federation.inputs(x, chosen.dtype))
        return nn.functional.cross_entropy(answer, y)

    dense = torch.autograd.functional.hessian(loss, model.w.flat())
    wanted = torch.linalg.eigvalsh(dense).flip(0)[:4]
    for chunk in (7, 256):
        found = curvature.largest_eigenvalues(chosen, model, samples, 4, chunk)
        assert found == pytest.approx(wanted.tolist(), rel=1e-7)


def test_divergence_and_distances_are_norms_of_differences(looked_into: Any) -> None:
    folder, _, found = looked_into
    _, models = models_of(folder)
    each = {name: np.stack([m.w.leaves[name].numpy().ravel() for m in models.local]) for name in models.server.w.leaves}
    for name, rows in each.items():
        middle = rows.mean(0)
        wanted = np.linalg.norm(rows - middle, axis=1) / np.linalg.norm(middle)
        assert found.divergence[name] == pytest.approx(wanted, rel=1e-9)
    flat = np.concatenate(list(each.values()), axis=1)
    pairs = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    own = [found.points.index(name) for name in found.names]
    assert found.distances[np.ix_(own, own)] == pytest.approx(pairs, abs=1e-10)
    assert found.summary()["mean distance of two"] == pytest.approx(pairs.sum() / 6, rel=1e-9)


def test_accuracies_are_those_of_modules(looked_into: Any) -> None:
    folder, _, found = looked_into
    chosen, models = models_of(folder)
    x, y = chosen.federation.test.spread(30).read(slice(None))
    for name, model in zip(found.names, models.local, strict=True):
        module = chosen.network.module(model.w, model.buffers).eval()
        with torch.no_grad():
            right = (module(x.double()).argmax(1) == y).double()
        wanted = [float(right[y == kind].mean()) for kind in range(3)]
        assert found.by_class[found.points.index(name)] == pytest.approx(wanted)
    table = accuracies.by_client(chosen, models.local[:1], found.clients, 1000)
    assert found.by_client[found.points.index(found.names[0])] == pytest.approx(table[0])


def test_cka_of_an_analysis_is_that_of_hooked_layers(looked_into: Any) -> None:
    folder, _, found = looked_into
    chosen, models = models_of(folder)
    answers = []
    for model in models.local[:2]:
        module = chosen.network.module(model.w, model.buffers).eval()
        with torch.no_grad():
            answers.append(module(chosen.federation.test.spread(30).read(slice(None))[0].double()).numpy())
    last = list(found.similarity)[-1]
    one, other = (found.compared.index(name) for name in found.names[:2])
    assert found.similarity[last][one, other] == pytest.approx(in_features(*answers), abs=1e-10)
    for matrix in found.similarity.values():
        assert np.diag(matrix) == pytest.approx(1)
        assert matrix == pytest.approx(matrix.T)


# ── files and pages ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_analysis_is_read_as_it_was_written(looked_into: Any, tmp_path: Path) -> None:
    folder, _, found = looked_into
    (again,) = written.of_run(folder)
    written.write(again, tmp_path)
    place = written.place_of(folder, found.round)
    assert (tmp_path / written.NAME).read_bytes() == (place / written.NAME).read_bytes()
    assert again.summary() == found.summary()
    pictures = {"surface", "path", "similarity", "divergence", "eigenvalues", "classes", "clients"}
    assert {file.stem for file in place.glob("*.png")} == {file.stem for file in place.glob("*.svg")} == pictures
    with (place / "surface.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 25
    assert float(rows[7]["loss"]) == pytest.approx(found.surface.loss[1, 2], rel=1e-6)
    content = json.loads((tmp_path / written.NAME).read_bytes())
    content["round"] += 1
    (tmp_path / written.NAME).write_text(json.dumps(content))
    with pytest.raises(DamagedRun):
        written.read(tmp_path / written.NAME)


def test_the_page_shows_what_was_analysed(looked_into: Any) -> None:
    folder, own, found = looked_into
    text = page(study_of([hw.load_run(folder, **own)]))
    assert text.count('<svg class="picture"') == 7
    assert "<image" not in text
    assert f"3 of {found.cohort} local models, 30 held-out samples" in text
    plain = page(study_of([hw.simulate("fedavg", SMALL, **own_problem())]))
    assert "Local models" not in plain


def test_other_tasks_have_what_is_defined_for_them(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    clients = [(draw.normal(size=(8, 6)), draw.normal(size=(8, 1))) for _ in range(4)]
    own = {"model": nn.Linear(6, 1), "clients": clients, "test": clients[0]}
    hw.simulate("fedavg", KEEPING.changed(participation=1.0), out=tmp_path / "run", **own)
    found = hw.analyse(tmp_path / "run", grid=3, eigenvalues=1, **own)
    assert found.by_class is None
    assert found.surface is not None
    assert "no accuracies by class" in found.notes[0]
    x = np.c_[clients[0][0], np.ones(8)]
    assert found.eigenvalues["θ"][0] == pytest.approx(2 * np.linalg.eigvalsh(x.T @ x / 8)[-1], rel=1e-6)


def test_two_clients_have_no_surface(tmp_path: Path) -> None:
    own = kept_run(tmp_path / "run", cohort_size=2)
    found = hw.analyse(tmp_path / "run", grid=3, eigenvalues=0, **own)
    assert found.surface is None
    assert "there are 2" in " ".join(found.notes)
    assert not found.eigenvalues


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    where = tmp_path / "run"
    small = ("--rounds", "2", "--keep-checkpoints", "1", "--model", "mlp", "--steps", "1", "--executor", "serial")
    printed("run", "fedacg", *small, "--out", str(where), "--quiet")
    told = printed("analyse", str(where), "--samples", "20", "--grid", "3", "--eigenvalues", "0")
    assert "mean distance of two" in told
    assert "Local models" in (where / "report.html").read_text()


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_cannot_be_analysed_is_refused(tmp_path: Path) -> None:
    own = kept_run(tmp_path / "run")
    refused(lambda: hw.analyse(tmp_path / "run", round=1, **own), "round is 1", "it kept: 2, 3")
    refused(lambda: hw.analyse(tmp_path / "run", grid=1, **own), "grid is 1", "from 3 to 201")
    refused(lambda: hw.analyse(tmp_path / "run", eigenvalues=True, **own), "eigenvalues is True")
    hw.simulate("fedacg", SMALL, out=tmp_path / "plain", **own_problem())
    refused(lambda: hw.analyse(tmp_path / "plain", **own_problem()), "--keep-checkpoints")
    refused(lambda: hw.simulate("fedacg", KEEPING, **own_problem()), "keep_checkpoints is 2", "has no folder")
    own = kept_run(tmp_path / "mifa", "mifa")
    refused(lambda: hw.analyse(tmp_path / "mifa", **own), "clients of mifa send something else")
    own = kept_run(tmp_path / "local", buffers="keep-local")
    refused(lambda: hw.analyse(tmp_path / "local", **own), "buffers is 'keep-local'")


def test_other_data_are_found_out(tmp_path: Path) -> None:
    own = kept_run(tmp_path / "run")
    other = {**own, **unequal_clients(seed=5)}
    refused(lambda: hw.analyse(tmp_path / "run", **other), "is not what", "data", "changed")


def test_a_round_that_comes_out_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where another version computes other numbers: the recorded drift is not met."""
    own = kept_run(tmp_path / "run")
    found = read_folder(tmp_path / "run")
    for record in found.rounds.records:
        record["drift"] *= 1.2
    monkeypatch.setattr("headway.analysis.inside.read_folder", lambda folder: found)
    refused(lambda: hw.analyse(tmp_path / "run", **own), "round 4 trained again is not the run's: drift is", "and was")


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    own = kept_run(tmp_path / "run")
    file = tmp_path / "run" / kept.FOLDER / "round-0000003-server.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedRun, match="fails its checksum"):
        analyse_run(tmp_path / "run", **own)


# ── beside each other ────────────────────────────────────────────────────────────────────────────────────────────────


def test_figure_2_shows_what_was_found_of_each_method(looked_into: Any) -> None:
    folder, _, found = looked_into
    whole = plan(preset("fedacg/figure-2"), scale="tiny")
    outcomes = {one: Outcome(folder=folder) for one in whole.runs[1:]}
    figure = draw_figure(whole, outcomes, local_models.KIND)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == [f"fedcm, round {found.round}", f"fedacg without prox, round {found.round}"]
    told = local_models.markdown(whole, outcomes)
    assert told.count(f"| {found.summary()['mean distance of two']:.4g} | ") == 1
    assert "SCALED DOWN" in told
    assert "No run of this item kept a state" in local_models.markdown(whole, {})


def test_a_verdict_says_on_which_numbers_a_paper_is_right() -> None:
    numbers = {
        "fedavgm": {"mean distance of two": 2.0, "CKA of two, last layer": 0.8},
        "fedcm": {"mean distance of two": 0.5, "CKA of two, last layer": 0.9},
        "fedacg": {"mean distance of two": 1.0, "CKA of two, last layer": 0.95},
    }
    assert local_models.verdict(numbers) == [
        "* mean distance of two: fedacg's is lower, as the paper says, than that of fedavgm; not lower than that of "
        "fedcm, unlike in the paper.",
        "* CKA of two, last layer: fedacg's is higher, as the paper says, than that of fedavgm, fedcm.",
    ]
    assert not local_models.verdict({"fedacg": numbers["fedacg"]})
