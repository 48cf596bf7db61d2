"""Client-level privacy: what enters a mean is bounded, the noise is as said, and nothing of a client goes past it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import headway as hw
from conftest import OTHERS, SMALL, batch_norm_dropout, distance, experiment, norm_free, played, unequal_clients
from headway import random
from headway.engine import privacy, server
from headway.engine.nothing import nothing
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods.catalogue import METHODS
from headway.methods.hooks import HOOKS
from headway.methods.method import Method
from headway.methods.privacy import guarantee
from headway.methods.server import private
from headway.methods.slots import Facts, Uploads
from headway.methods.spelling import method
from headway.random import built
from headway.vectors import Vector

UNIFORM: dict[str, Any] = {"weights": "uniform", "sampling": "poisson"}
PRIVATE = [name for name in METHODS if guarantee(method(name)).verdict != "refused"]
LOOSE = 1e9
"""A clip beyond every update."""


def ends(spelled: Any, **changes: Any) -> tuple[list[dict[str, Any]], Any]:
    records, progress = played(experiment(spelled, **{**UNIFORM, **changes}))
    return records, progress.model


def joint(fields: dict[str, Vector]) -> float:
    return math.sqrt(sum(float(field.norm(torch.float64)) ** 2 for field in fields.values()))


def vector(*numbers: float, dtype: torch.dtype = torch.float64) -> Vector:
    return Vector({"a": torch.tensor(numbers[:1], dtype=dtype), "b": torch.tensor(numbers[1:], dtype=dtype)})


# ── what one client can do ───────────────────────────────────────────────────────────────────────────────────────────


@settings(deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4),
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4),
    st.floats(1e-3, 1e3),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_all_fields_of_a_client_together_are_never_longer_than_the_clip(
    one: list[float], two: list[float], clip: float, dtype: torch.dtype
) -> None:
    """Not by a rounding either; what is inside stays to the bit; directions stay."""
    fields = {"delta": vector(*one, dtype=dtype), "control": vector(*two, dtype=dtype)}
    before, found = joint(fields), private(clip, 1.0).bound(fields)
    assert joint(found) <= clip
    for name, field in fields.items():
        if before <= clip:
            assert torch.equal(found[name].flat(), field.flat())
        else:
            wanted = field.flat().double() * (clip / before)
            assert torch.allclose(found[name].flat().double(), wanted, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("name", PRIVATE)
def test_whatever_a_method_uploads_and_derives_is_bounded_together(name: str) -> None:
    """Also fields that the server derives, such as FedCM's directions, and after quantisation."""
    clip = 1e-3
    chosen = method(f"{name}+dp:clip={clip},noise=1" + ("" if name == "fedpaq" else "+fedpaq:bits=4"))
    like = built(norm_free, 1, "test")
    point = Vector({name: leaf.detach().double() for name, leaf in like.named_parameters()})
    fields = {field: point * (3.0 + place) for place, field in enumerate(("delta", "control", "change", "gradient"))}
    facts = Facts(steps=torch.tensor(3), rate_sum=torch.tensor(0.02).double(), size=torch.tensor(5))
    coded = {field: chosen.wire.up.encode(one, torch.tensor([1, 2])) for field, one in fields.items()}
    decoded = {field: chosen.wire.up.decode(one, point) for field, one in coded.items()}
    derived = chosen.derive(decoded, facts)
    assert joint(derived) == pytest.approx(clip, rel=1e-9)
    assert joint(derived) <= clip
    assert set(derived) >= set(fields)


def test_what_a_run_sums_is_bounded_by_the_clip_times_those_who_came() -> None:
    """The step of every round without noise is at most C·|S|/m, and with a tiny clip exactly of that order."""
    clip, m = 1e-3, 0.5 * 6
    records, _ = ends(f"fedavg+dp:clip={clip},noise=0", rounds=8)
    assert len({len(record["clients"]) for record in records}) > 1
    for record in records:
        assert record["update_norm"] <= clip * len(record["clients"]) / m + 1e-12


def test_a_loose_clip_without_noise_is_the_method_itself() -> None:
    """To the bit, where as many come as are planned: the sum over m is the mean."""
    for name in ("fedavg", "fedacg", "fedadam", "gradma-w", "moon", "mimelite"):
        mine, model = ends(f"{name}+dp:clip={LOOSE},noise=0", sampling="fixed")
        plain, other = ends(name, sampling="fixed")
        assert torch.equal(model.theta.flat(), other.theta.flat()), name
        assert [one["update_norm"] for one in mine] == [one["update_norm"] for one in plain]


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "feddc", "mifa", "fedcm"])
def test_without_clipping_and_noise_means_over_all_clients_stay_exact(name: str) -> None:
    """Whoever comes: Σ_S p_i x_i is share · mean with m/N and a sum over m, as it is with |S|/N and a mean."""
    _, model = ends(f"{name}+dp:clip={LOOSE},noise=0", sampling="full")
    _, other = ends(name, sampling="full")
    assert distance([model.theta, model.server], [other.theta, other.server]) < 1e-12


# ── the noise ────────────────────────────────────────────────────────────────────────────────────────────────────────


def uploads(mean: dict[str, Vector], came: int, wanted: float, normals: random.Normals) -> Uploads:
    return Uploads(
        mean,
        {"model": vector(0, 0, 0)},
        rate=0.1,
        share=came / 50,
        clients=tuple(range(came)),
        weights=(1 / max(came, 1),) * came,
        population=50,
        wanted=wanted,
        normals=normals,
    )


@pytest.mark.parametrize("secret", [False, True])
def test_the_noise_of_a_mean_has_the_deviation_zc_over_m(secret: bool) -> None:
    """Normal by the Kolmogorov–Smirnov test, of mean 0; every field and coordinate has its own."""
    from scipy import stats

    wide = Vector({"a": torch.zeros(200, 300, dtype=torch.float64), "b": torch.zeros(70001, dtype=torch.float64)})
    normals = random.secret_normals if secret else random.normals(5, "privacy", 1)
    given = uploads({"delta": wide, "control": wide}, 7, 12.5, normals)
    found, _ = private(clip=0.5, noise=3.0).prepare(given, {})
    drawn = torch.cat([found.mean[name].flat() for name in ("control", "delta")]).numpy() / (3.0 * 0.5 / 12.5)
    count = len(drawn)
    assert count == 2 * 130_001
    assert abs(drawn.mean()) < 5 / math.sqrt(count)
    assert abs(drawn.std() - 1) < 5 / math.sqrt(2 * count)
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert len(np.unique(drawn)) > 0.999 * count
    assert abs(np.corrcoef(drawn[: count // 2], drawn[count // 2 :])[0, 1]) < 5 / math.sqrt(count / 2)


def test_noise_is_the_seed_s_and_the_round_s_and_secret_noise_nobody_s() -> None:
    def first(normals: random.Normals) -> list[float]:
        return list(normals((3,)).tolist())

    assert first(random.normals(1, "privacy", 2)) == first(random.normals(1, "privacy", 2))
    assert first(random.normals(1, "privacy", 2)) != first(random.normals(1, "privacy", 3))
    assert first(random.normals(1, "privacy", 2)) != first(random.normals(2, "privacy", 2))
    assert first(random.secret_normals) != first(random.secret_normals)
    assert random.secret_normals((0,)).shape == (0,)
    assert random.secret_normals(()).shape == ()


def test_a_sum_is_divided_by_those_planned_and_nobody_is_named() -> None:
    given = uploads({"delta": vector(1, 2, 3)}, came=7, wanted=10.0, normals=random.normals(0, "privacy", 1))
    found, _ = private(clip=1.0, noise=0.0).prepare(given, {})
    assert torch.allclose(found.mean["delta"].flat(), torch.tensor([0.7, 1.4, 2.1]).double())
    assert found.share == 10 / 50
    for looked in (lambda: len(found.clients), lambda: list(found.weights), lambda: 3 in found.clients):
        with pytest.raises(UserError, match="who took part is asked for, which differential privacy hides"):
            looked()


def test_a_server_that_looks_at_who_came_is_refused_with_its_name() -> None:
    def counting(model: Vector, uploads: Uploads) -> Vector:
        return model + uploads.mean["delta"] * len(uploads.clients)

    own = Method(server=(counting, private(1.0, 1.0)), name="mine")
    with pytest.raises(UserError, match=r"server slot counting of method 'mine'.*who took part is asked for"):
        ends(own)


def test_bound_gives_the_names_that_it_was_given() -> None:
    class Losing:
        adds = True

        def bound(self, fields: Any) -> Any:
            return {}

        def update(self, model: Vector, uploads: Uploads, state: Any) -> Any:
            return model, state

    with pytest.raises(UserError, match="bound returned fields in which 'delta' is missing"):
        played(experiment(Method(server=Losing(), name="mine")))
    assert "bound" in HOOKS["server"]


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("executor", OTHERS)
@pytest.mark.parametrize("name", ["fedacg", "scaffold", "fedcm", "mifa", "fedpaq:bits=6"])
def test_every_executor_has_serial_s_numbers(name: str, executor: str) -> None:
    """Empty rounds among them: two of eight here."""
    chosen = experiment(f"{name}+dp:clip=0.3,noise=0.7", **UNIFORM, participation=0.2, rounds=8)
    mine, theirs = ClientStates(), ClientStates()
    (records, end), (others, other) = played(chosen, "serial", mine), played(chosen, executor, theirs)
    assert sum(not record["clients"] for record in records) >= 1
    assert distance([end.model.theta, end.model.server], [other.model.theta, other.model.server]) < 1e-10
    assert all(distance(mine.states[client], theirs.states[client]) < 1e-10 for client in mine.states)
    assert [one["clients"] for one in records] == [one["clients"] for one in others]


@pytest.mark.parametrize("name", [*PRIVATE, "fedavg+adamw:state=average", "fedavg+muon:state=average"])
def test_a_round_in_which_nobody_comes_is_noise_on_what_every_upload_has(name: str) -> None:
    """Names and shapes are those of a real round's mean; the model moves by the noise alone."""
    chosen = experiment(f"{name}+dp:clip=0.5,noise=1", **UNIFORM, participation=1e-12, rounds=2)
    state = server.initial_state(chosen)
    sent = server.received(chosen.method, server.broadcast(chosen, state, 1), state.theta)
    absent = nothing(chosen, sent)
    seen: list[dict[str, Vector]] = []

    class Looking:
        adds = True

        def prepare(self, uploads: Uploads, state: Any) -> Any:
            seen.append(dict(uploads.mean))
            return uploads, state

        def update(self, model: Vector, uploads: Uploads, state: Any) -> Any:
            return model, state

    base, *additions = chosen.method.server
    looking = dataclasses.replace(chosen.method, server=(base, Looking(), *additions))
    played(dataclasses.replace(chosen, method=looking, scenario=chosen.scenario.changed(participation=1.0, rounds=1)))
    shapes = [
        {field: {name: leaf.shape for name, leaf in one.leaves.items()} for field, one in mean.items()}
        for mean in (absent, seen[0])
    ]
    assert shapes[0] == shapes[1]
    records, progress = played(chosen)
    assert [record["clients"] for record in records] == [(), ()]
    assert all(record["steps"] == record["bytes_up"] == 0 for record in records)
    assert records[0]["update_norm"] > 0 or name.startswith("mifa")
    assert torch.isfinite(progress.model.theta.flat()).all()


def test_a_round_of_nobody_is_its_noise() -> None:
    chosen = experiment("fedavg+dp:clip=0.5,noise=2", **UNIFORM, participation=1e-3, rounds=1)
    assert not chosen.sampling.draw(1)
    _, progress = played(chosen)
    draw = random.normals(chosen.scenario.seed, "privacy", 1)
    theta = chosen.network.parameters
    expected = theta.map(lambda leaf: leaf + (2 * 0.5 / (1e-3 * 6)) * draw(tuple(leaf.shape)))
    assert distance(progress.model.theta, expected) < 1e-12


def test_noise_comes_from_the_seed_unless_an_experiment_says_from_where() -> None:
    """A simulation repeats itself; with the system's secrets nothing repeats."""

    def theta(source: Any) -> torch.Tensor:
        chosen = experiment("fedavg+dp", **UNIFORM, rounds=2)
        end: Vector = played(dataclasses.replace(chosen, noise_source=source))[1].model.theta
        return end.flat()

    assert torch.equal(theta(None), theta(lambda round: random.normals(0, "privacy", round)))
    assert not torch.equal(theta(lambda _: random.secret_normals), theta(lambda _: random.secret_normals))


def test_nothing_that_clients_measure_is_recorded() -> None:
    """No training loss and nothing that slots measure in clients; what is made of the noisy mean stays."""
    records, _ = ends("gradma-w+dp")
    plain, _ = ends("gradma-w")
    assert {"train_loss", "local_correction"} <= set(plain[0])
    diagnostics = {"update_norm_mean", "update_norm_std", "diversity", "drift", "clipped_share"}
    assert set(plain[0]) - set(records[0]) == {"train_loss", "local_correction", *diagnostics}


def test_clients_that_drop_out_or_are_skipped_leave_the_sum_as_it_is() -> None:
    """Σ over those that count, over m: with everybody lost it is noise again."""
    records, _ = ends("fedavg+dp:clip=1e-3,noise=0", dropout=0.5, rounds=12, sampling="full")
    assert len({len(record["clients"]) for record in records}) > 2
    assert all(record["update_norm"] <= 1e-3 * len(record["clients"]) / 6 + 1e-12 for record in records)


# ── what is refused, and what is said ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": "size"}, "weights is 'size', but with \\+dp all clients count the same.*--weights uniform"),
        ({"sampling": "bernoulli"}, "sampling is 'bernoulli', of which no accountant.*--sampling poisson"),
        ({"sampling": "replacement"}, "sampling is 'replacement'"),
        ({"sampling": "authors"}, "sampling is 'authors'"),
        ({"sampling": "fixed", "over_selection": 0.5}, "over_selection is 0.5, by which one client decides"),
        ({"global_loss": True}, "global_loss measures the loss on all clients' training data"),
    ],
)
def test_settings_by_which_a_client_would_show_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        experiment("fedavg+dp", **{**UNIFORM, **changes})


def test_statistics_of_batchnorm_do_not_travel() -> None:
    with pytest.raises(UserError, match="buffers is 'average', which sends BatchNorm's statistics without noise"):
        experiment("fedavg+dp", "batch_norm_dropout", **UNIFORM)
    kept = experiment("fedavg+dp", "batch_norm_dropout", **UNIFORM, buffers="keep-local")
    assert privacy.cautions(kept) == []
    assert isinstance(built(batch_norm_dropout, 1, "test"), nn.Module)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in PRIVATE])
def test_a_method_that_cannot_be_private_is_refused_before_anything_runs(name: str) -> None:
    words = guarantee(method(name)).reason
    with pytest.raises(UserError, match=r"in one place|must see (each client's upload|the loss)"):
        experiment(f"{name}+dp", **UNIFORM, participation=1.0)
    assert "one place" in words or "must see" in words


def test_the_table_of_methods_is_read_from_their_slots() -> None:
    verdicts = {name: guarantee(method(name)).verdict for name in METHODS}
    assert {name for name, verdict in verdicts.items() if verdict == "refused"} == {
        "csgd",
        "cnag",
        "fednag",
        "gradma",
        "gradma-s",
    }
    broken = {name for name, verdict in verdicts.items() if verdict == "kept, and a relation breaks"}
    assert broken == {"scaffold", "feddc", "feddyn", "mifa", "mifam"}
    assert guarantee(method("mifa:wait=true")).reason == "the server's latest_update_mean must see who took part"
    with pytest.raises(UserError, match="latest_update_mean must see who took part, and private"):
        method("mifa:wait=true+dp")


def test_the_page_has_every_method_with_its_verdict() -> None:
    page = (Path(__file__).parents[1] / "docs" / "privacy.md").read_text(encoding="utf-8")
    for name in METHODS:
        found = guarantee(method(name))
        assert f"| `{name}` | {found.verdict} | {found.reason} |" in page, name


def test_what_breaks_is_said_before_the_first_round() -> None:
    said = privacy.cautions(experiment("scaffold+dp", **UNIFORM))
    assert [line.split(",")[0] for line in said] == ["the guarantee holds"]
    assert "control_mean" in said[0]
    assert "protected" in privacy.cautions(experiment("fedavg+dp:noise=0", **UNIFORM))[0]
    assert "without replacement" in privacy.cautions(experiment("fedavg+dp", **{**UNIFORM, "sampling": "fixed"}))[0]
    assert privacy.cautions(experiment("fedavg+dp", **{**UNIFORM, "sampling": "full"})) == []
    assert privacy.cautions(experiment("fedavg")) == []
    assert "not below 1/N" in privacy.cautions(experiment("fedavg+dp", **UNIFORM, delta=0.2))[0]
    assert "not covered" in privacy.cautions(experiment("fedavg+dp", **UNIFORM, validation=0.3))[0]


@pytest.mark.parametrize("given", [{"delta": 1e-6}, {"epsilon": 3.0}, {"accountant": "rdp"}])
def test_settings_of_privacy_need_a_private_method(given: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=rf"{next(iter(given))} is .*, but method 'fedavg' is not private; add \+dp"):
        experiment("fedavg", **given)


def test_a_training_loss_cannot_be_watched() -> None:
    with pytest.raises(UserError, match="train_loss is not recorded with"):
        hw.simulate(
            "fedavg+dp:noise=0",
            SMALL.changed(**UNIFORM, executor="serial"),
            model=built(norm_free, 7, "test"),
            callbacks=hw.EarlyStopping("train_loss"),
            **unequal_clients(),
        )
