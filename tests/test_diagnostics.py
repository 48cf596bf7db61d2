"""What rounds say of their clients: against a direct computation from every update, in every kind of executor."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import headway as hw
from conftest import SMALL, experiment, made_by, own_problem, refused, unequal_clients
from headway.engine.building import build
from headway.engine.simulation import begin, simulate, spread_over
from headway.engine.states import ClientStates
from headway.methods.catalogue import METHODS
from headway.methods.spelling import method
from headway.records import Diagnostics
from methods_under_test import sampled
from ranks_at_work import on_ranks, returned

Past = list[tuple[Any, Any]]
"""θ and the server's states at the beginning and after each round so far."""


def held(part: str, name: str, sign: int = 1) -> Callable[[Past], np.ndarray | None]:
    """A momentum that the server's state has, with its sign beside that of an update."""
    return lambda past: sign * flat(past[-1][1][part][name])


def step_of_v(past: Past) -> np.ndarray | None:
    """v_t − v_{t−1} of FedMom, v₀ = θ⁰."""
    v = [flat(server["server.nesterov"]["v"]) for _, server in past[-2:]]
    return v[1] - v[0] if len(v) > 1 else None


def motion(past: Past) -> np.ndarray | None:
    """(θ_t − θ_{t−τ})/τ of GHBM, where there are so many rounds."""
    tau = len(next(iter(past[-1][1]["server.past_motion"]["models"].leaves.values())))
    return (flat(past[-1][0]) - flat(past[-1 - tau][0])) / tau if len(past) > tau else None


MOMENTA: dict[str, Callable[[Past], np.ndarray | None]] = {
    "server.momentum": held("server.momentum", "momentum"),
    "server.interpolation": held("server.interpolation", "momentum"),
    "server.nesterov": step_of_v,
    **{part: held(part, "m") for part in ("server.adam", "server.adagrad", "server.yogi", "server.ams")},
    "server.velocity_mean": held("server.velocity_mean", "velocity"),
    "server.direction_mean": held("server.direction_mean", "direction", -1),
    "server.gradient_momentum": held("server.gradient_momentum", "statistics", -1),
    "server.drift_momentum": held("server.drift_momentum", "pull", -1),
    "server.past_motion": motion,
    "server.update_memory": held("server.update_memory", "momentum", -1),
}
"""The momentum of each server rule that has one, in the sign of an update; None where there is none yet."""
NAMES = frozenset(Diagnostics.__annotations__)


class Recording:
    """An executor that keeps each update of a round, on its way from another one."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.name = inner, inner.name
        self.deltas: dict[int, np.ndarray] = {}

    def run(self, given: Any, rounds: Any) -> Iterator[Any]:
        for group in self.inner.run(given, rounds):
            delta = group.trained["fields"].get("delta")
            for at, position in enumerate(group.positions if delta is not None else ()):
                flat = [leaf[at].double().reshape(-1).numpy() for leaf in delta.leaves.values()]
                self.deltas[len(self.deltas) if rounds.turn.repeat else position] = np.concatenate(flat).copy()
            yield group

    def prefetch(self, round: int) -> None:
        self.inner.prefetch(round)

    def close(self) -> None:
        self.inner.close()


def flat(vector: Any) -> np.ndarray:
    return np.concatenate([leaf.double().reshape(-1).numpy() for leaf in vector.leaves.values()])


def directly(deltas: np.ndarray, weights: np.ndarray, past: Past) -> dict[str, float]:
    """The diagnostics of these updates, rows of `deltas`, written down as they are defined."""
    norms, mean = np.linalg.norm(deltas, axis=1), weights @ deltas
    found = {"update_norm_mean": norms.mean()}
    if len(deltas) > 1:
        apart = np.linalg.norm(deltas - mean, axis=1)
        found |= {
            "update_norm_std": norms.std(),
            "diversity": weights @ norms**2 / (mean @ mean),
            "drift": np.sqrt(weights @ apart**2),
        }
    for part in MOMENTA.keys() & past[-1][1].keys():
        momentum = MOMENTA[part](past)
        if momentum is not None and momentum.any():
            found["cosine_momentum"] = momentum @ mean / np.linalg.norm(momentum) / np.linalg.norm(mean)
    return {key: float(value) for key, value in found.items()}


def snapshot(model: Any) -> tuple[Any, Any]:
    """θ and the server's states by now; no later round changes them, but for rows that a rule owns."""
    return model.theta, {part: dict(state.items()) for part, state in model.server.items()}


def compared(name: str, executor: str, **settings: Any) -> list[dict[str, Any]]:
    """Play a run, and compare every round; its records."""
    chosen = experiment(name, "batch_norm_dropout", clip=0.0, **settings)
    hand, records, progress = Recording(made_by(executor, chosen)), [], begin(chosen)
    past = [snapshot(progress.model)]
    try:
        for record, after in simulate(chosen, hand, ClientStates(), progress):
            sizes = chosen.federation.sizes[list(record["clients"])]
            deltas = np.array([hand.deltas[place] for place in sorted(hand.deltas)])
            wanted = directly(deltas, sizes / sizes.sum(), past) if len(deltas) else {}
            told = {key: value for key, value in record.items() if key in NAMES}
            assert told.keys() == wanted.keys()
            for key, value in wanted.items():
                assert told[key] == pytest.approx(value, rel=1e-9, abs=1e-12), key
            past.append(snapshot(after.model))
            hand.deltas = {}
            records.append(dict(record))
    finally:
        hand.close()
    return records


@pytest.mark.parametrize("executor", ["serial", "batched"])
@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_tells_what_a_direct_computation_finds(name: str, executor: str) -> None:
    compared(name, executor, rounds=3)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("fedmom:momentum=0.6,server_rate=0.7", 2),
        ("fedadc:momentum=0.6,local_momentum=0.3", 2),
        ("ghbm:tau=1", 2),
        ("ghbm:tau=3", 4),
        ("fedadagrad:beta1=0.9", 2),
        ("fedyogi", 2),
        ("fedams", 2),
    ],
)
def test_a_momentum_is_compared_as_soon_as_there_is_one(name: str, first: int) -> None:
    """And never before; GHBM has one once τ rounds were played."""
    records = compared(name, "serial", rounds=6, rate_decay=0.9)
    assert [record["round"] for record in records if "cosine_momentum" in record] == list(range(first, 7))


def test_nesterovs_method_without_momentum_has_none() -> None:
    for record in hw.simulate("fedmom:momentum=0", SMALL, **own_problem()).records:
        assert "cosine_momentum" not in record
        assert "diversity" in record


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("fedmom:momentum=0.6", "fedacg:lam=0.6,beta=0"),  # two names of one iteration: its φ is our θ
        ("fedadc:momentum=0.5,local_momentum=0", "fedavgm:momentum=0.5"),
        ("ghbm:tau=1,beta=0", "fedavgm:momentum=0"),  # θ_t − θ_{t−1} is the last Δ
    ],
)
def test_two_names_of_one_iteration_have_one_cosine(one: str, other: str) -> None:
    mine, theirs = (
        hw.simulate(name, SMALL.changed(rounds=5, rate_decay=1.0), **own_problem()).records for name in (one, other)
    )
    assert "cosine_momentum" in theirs[1]
    for left, right in zip(mine, theirs, strict=True):
        assert ("cosine_momentum" in left) == ("cosine_momentum" in right)
        assert left.get("cosine_momentum", 0) == pytest.approx(right.get("cosine_momentum", 0), rel=1e-6)


@pytest.mark.parametrize("name", sampled(METHODS))
def test_the_page_of_a_method_says_whether_its_rounds_compare_a_momentum(name: str) -> None:
    """Of those whose momentum is there after a round."""
    page = (Path(__file__).parents[1] / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    spelled = {"ghbm": "ghbm:tau=1"}.get(name, name)
    records = hw.simulate(spelled, SMALL.changed(rounds=2), **own_problem()).records
    assert ("cosine_momentum" in records[-1]) == ("`cosine_momentum` is the cosine" in page)


@pytest.mark.parametrize("name", ["fedacg", "scaffold", "mifa"])
def test_processes_tell_the_same(name: str) -> None:
    records = compared(name, "pool", rounds=3)
    assert all(("drift" in record) == (name != "mifa") for record in records)


def test_one_client_has_no_spread() -> None:
    for record in compared("fedavgm", "serial", cohort_size=1):
        assert record.keys().isdisjoint(("update_norm_std", "diversity", "drift"))
        assert record["update_norm_mean"] > 0


def test_a_round_of_nobody_tells_nothing() -> None:
    result = hw.simulate("fedacg", SMALL.changed(dropout=0.9, rounds=8), **own_problem())
    empty = [record for record in result.records if not record["clients"]]
    assert empty
    assert all(record.keys().isdisjoint(NAMES) for record in empty)


def test_clients_that_send_the_same_do_not_differ() -> None:
    """Equal clients with full batches: the local models are one, whatever the method adds on the server."""
    alike = unequal_clients((8,))["clients"] * 4
    given = {**own_problem(), "clients": alike}
    settings = SMALL.changed(batch_size=8, epochs=1, participation=1.0)
    for record in hw.simulate("fedavgm", settings, **given).records:
        assert record["diversity"] == pytest.approx(1, abs=1e-12)
        assert record["drift"] < 1e-7 * record["update_norm_mean"]
        assert record["update_norm_std"] < 1e-12


def test_what_is_private_is_not_told() -> None:
    settings = SMALL.changed(weights="uniform", sampling="poisson")
    for record in hw.simulate("fedacg+dp:clip=1,noise=1", settings, **own_problem()).records:
        assert record.keys().isdisjoint(NAMES)


# ── clipping ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class counting:
    """SGD, which counts the steps whose gradient has the length at which gradients are clipped."""

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def begin(self, received: Any, kept: Any, client: Any) -> dict[str, Tensor]:
        return {"count": torch.zeros((), dtype=torch.float64)}

    def direction(self, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
        reached = gradient.norm() >= self._limit * (1 - 1e-5)
        return gradient, {"count": memory["count"] + reached}

    def finish(self, end: Any, memory: Any, kept: Any) -> Any:
        one = next(iter(end.delta.leaves.values()))
        return {"seen": hw.Vector({"count": memory["count"].to(one.dtype)})}, kept


class summing:
    """The mean of the counts, which are recorded."""

    adds = True

    def __init__(self) -> None:
        self._seen: list[float] = []

    needs_each = True

    def update(self, model: Any, uploads: Any, state: Any) -> Any:
        self._seen.append(sum(float(each["seen"].leaves["count"]) for each in uploads.each))
        return model, state


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
@pytest.mark.parametrize("limit", [0.8, 1.2])
def test_clipped_steps_are_those_whose_gradient_was_too_long(limit: float, executor: str) -> None:
    seen = summing()
    counted = hw.Method(local=counting(limit), server=(hw.server.average(), seen), name="counted")
    records = hw.simulate(counted, SMALL.changed(clip=limit, executor=executor), **own_problem()).records
    for record, count in zip(records, seen._seen, strict=True):
        assert record["clipped_share"] == count / record["steps"]
    assert any(0 < record["clipped_share"] < 1 for record in records)


def test_without_clipping_no_share_is_told() -> None:
    records = hw.simulate("fedavg", SMALL.changed(clip=0.0), **own_problem()).records
    assert all("clipped_share" not in record for record in records)


# ── with diagnose ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_cosines_are_those_that_callbacks_see() -> None:
    class Seeing:
        needs = ("updates",)

        def __init__(self) -> None:
            self.found: list[Any] = []

        def on_round(self, run: hw.Run) -> None:
            self.found.append(run.updates)

    seeing = Seeing()
    result = hw.simulate("fedacg", SMALL.changed(diagnose="cosines"), callbacks=seeing, **own_problem())
    for record, updates in zip(result.records, seeing.found, strict=True):
        assert record["update_cosines"] == list(updates.cosines)
        assert record["pair_cosine_mean"] == updates.pairwise
        assert record["pair_cosine_least"] == updates.least <= updates.pairwise
        assert "forgetting_by_class" not in record


def lacking_clients() -> dict[str, Any]:
    """Clients that each lack a class, but for the last."""
    given = unequal_clients((12, 12, 12, 12))
    kept = [(x[y != out], y[y != out]) for out, (x, y) in enumerate(given["clients"][:3])]
    return {**given, "clients": [*kept, given["clients"][3]]}


class Locally:
    """An executor that keeps each local model of a round as a module's state."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.name = inner, inner.name
        self.models: dict[int, tuple[Any, Any]] = {}
        self.received: Any = None

    def run(self, given: Any, rounds: Any) -> Iterator[Any]:
        self.received = given.message["model"], given.buffers
        for group in self.inner.run(given, rounds):
            for at, position in enumerate(group.positions):
                delta = group.trained["fields"]["delta"].map(lambda leaf, at=at: leaf[at].clone())
                buffers = {name: leaf[at].clone() for name, leaf in group.trained["buffers"].items()}
                self.models[position] = given.message["model"] + delta, buffers
            yield group

    def prefetch(self, round: int) -> None:
        pass

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize("executor", ["serial", "batched"])
def test_forgetting_is_the_fall_of_accuracies_of_modules(executor: str) -> None:
    """Modules with the local models' parameters, judged by torch alone."""
    given = lacking_clients()
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()
    chosen = built(module, given)
    hand = Locally(made_by(executor, chosen))
    x, y = (torch.as_tensor(part) for part in given["test"])

    def by_class(model: Any) -> np.ndarray:
        inner = chosen.network.module(*model).double().eval()
        with torch.no_grad():
            right = inner(x.double()).argmax(1) == y
        return np.array([float(right[y == kind].double().mean()) for kind in range(3)])

    counts = np.bincount(y.numpy(), minlength=3)
    try:
        for record, _ in simulate(chosen, hand, ClientStates(), begin(chosen)):
            before, falls, shares = by_class(hand.received), {}, []
            for place, client in enumerate(record["clients"]):
                after = by_class(hand.models[place])
                have = np.bincount(given["clients"][client][1], minlength=3) > 0
                if have.all():
                    continue
                share = counts * ~have / counts[~have].sum()
                shares.append((share @ before, share @ after))
                for kind in np.flatnonzero(~have):
                    falls.setdefault(str(kind), []).append(before[kind] - after[kind])
            assert record["absent_accuracy_before"] == pytest.approx(np.mean([one for one, _ in shares]))
            assert record["absent_accuracy_after"] == pytest.approx(np.mean([one for _, one in shares]))
            wanted = {kind: np.mean(values) for kind, values in falls.items()}
            assert record["forgetting_by_class"] == pytest.approx(wanted, abs=1e-12)
    finally:
        hand.close()


def built(module: nn.Module, given: dict[str, Any], **settings: Any) -> Any:
    changes = {"participation": 1.0, "diagnose": "forgetting", **settings}
    return build(SMALL.changed(**changes), method("fedacg"), model=module, **given)


def test_ranks_tell_the_same_together() -> None:
    """The bits of one process, with everything that is measured."""
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()
    chosen = built(module, lacking_clients(), deterministic=True, diagnose="all", rounds=2, clip=0.5)

    def play(ranks: Any = None) -> str:
        hand, store = made_by("serial", chosen), ClientStates()
        over = None if ranks is None else spread_over(ranks, chosen, store)
        found = simulate(chosen, hand, store, begin(chosen), spread=over)
        return json.dumps([{key: one[key] for key in sorted(NAMES & one.keys())} for one, _ in found])

    alone = play()
    assert all(found == alone for found in returned(on_ranks(2, play)))
    assert json.loads(alone)[1].keys() == NAMES


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "private": (
        "fedavg+dp:clip=1,noise=1",
        {"weights": "uniform", "sampling": "poisson", "network": "norm_free"},
        r"with \+dp leave it out",
    ),
    "no updates": ("mifa", {}, "clients of mifa send something else"),
    "own statistics": ("fedavg", {"buffers": "keep-local"}, "no statistics to be judged with"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_told_is_refused(case: str) -> None:
    name, settings, words = REFUSED[case]
    with pytest.raises(hw.UserError, match=f"diagnose is 'all', .*{words}"):
        experiment(name, **{"network": "batch_norm_dropout", "diagnose": "all", **settings})


def test_forgetting_needs_classes() -> None:
    draw = np.random.default_rng(0)
    clients = [(draw.normal(size=(6, 6)), draw.normal(size=(6, 1))) for _ in range(3)]
    given = {"model": nn.Linear(6, 1), "clients": clients, "test": clients[0]}
    said = refused(
        lambda: hw.simulate("fedavg", SMALL.changed(diagnose="forgetting"), **given), "use --diagnose cosines"
    )
    assert "not one class a sample" in said
    agreeing = hw.simulate("fedavg", SMALL.changed(diagnose="cosines", participation=1.0), **given)
    assert all(-1 <= record["pair_cosine_least"] <= 1 for record in agreeing.records)
