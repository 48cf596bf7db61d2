"""Optimisers of the clients: PyTorch's own numbers, the same in every executor, and the ways their memory lives on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import headway as hw
from conftest import EXECUTORS, SMALL, distance, experiment, made_by, played, unequal_clients
from headway.data.batches import plan
from headway.engine import coupling
from headway.engine.building import build
from headway.engine.cost import cost
from headway.engine.network import roles_of
from headway.engine.selection import make_executor
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods import local
from headway.methods.local.muon import COEFFICIENTS, orthogonalised
from headway.methods.method import Method
from headway.methods.slots import State, Step
from headway.methods.spelling import method
from headway.models.gpt import gpt_char_small
from headway.random import built
from headway.runs.checkpoint import Checkpoint
from headway.trees import leaves_of, nbytes
from headway.vectors import Vector

ROUNDS, STEPS, BATCH, RATE, DECAY = 4, 5, 7, 0.05, 0.1
SAMPLES = 24

Optimiser = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def network(name: str = "module") -> nn.Module:
    return built(
        lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3)), 3, name
    )


def ours(spelled: str | Method, decay: float = DECAY, **settings: Any) -> nn.Module:
    """One client's rounds in Headway."""
    data = unequal_clients((SAMPLES,))
    scenario = SMALL.changed(
        rounds=ROUNDS, steps=STEPS, batch_size=BATCH, rate=RATE, rate_decay=1.0, clip=0.0, weight_decay=decay
    )
    run = hw.simulate(spelled, scenario, model=network(), participation=1.0, executor="serial", **data, **settings)
    return run.model


def theirs(optimiser: Optimiser, renewed: bool = False) -> nn.Module:
    """The same steps on the same batches by an optimiser of PyTorch's, in float64; `renewed` in each round."""
    module, (x, y) = network().double(), unequal_clients((SAMPLES,))["clients"][0]
    step = optimiser(list(module.parameters()))
    chosen = SMALL.changed(rounds=ROUNDS, steps=STEPS, batch_size=BATCH)
    for round in range(1, ROUNDS + 1):
        step = optimiser(list(module.parameters())) if renewed else step
        batches = plan(chosen, np.arange(SAMPLES), chosen.seed, round, 0, 0)
        for rows, count in zip(batches.rows, batches.counts, strict=True):
            chosen_rows = rows[:count]
            step.zero_grad()
            logits = module(torch.from_numpy(x[chosen_rows]))
            nn.functional.cross_entropy(logits, torch.from_numpy(y[chosen_rows])).backward()
            step.step()
    return module


def gap(one: nn.Module, other: nn.Module) -> float:
    return distance(dict(one.state_dict()), dict(other.state_dict()))


PYTORCH: dict[str, Optimiser] = {
    "fedavg": lambda p: torch.optim.SGD(p, RATE, weight_decay=DECAY),
    "fedavg+sgd:momentum=0.9,state=keep": lambda p: torch.optim.SGD(p, RATE, 0.9, weight_decay=DECAY),
    "fedavg+sgd:momentum=0.9,nesterov=true,state=keep": lambda p: torch.optim.SGD(
        p, RATE, 0.9, weight_decay=DECAY, nesterov=True
    ),
    "fedavg+sgd:momentum=0.9,state=average": lambda p: torch.optim.SGD(p, RATE, 0.9, weight_decay=DECAY),
    "fedavg+adam:state=keep": lambda p: torch.optim.Adam(p, RATE, weight_decay=DECAY),
    "fedavg+adam:beta1=0.8,beta2=0.95,eps=0.001,state=keep": lambda p: torch.optim.Adam(
        p, RATE, (0.8, 0.95), 0.001, weight_decay=DECAY
    ),
    "fedavg+adam:decay=decoupled,state=keep": lambda p: torch.optim.AdamW(p, RATE, weight_decay=DECAY),
    "fedavg+adamw:state=keep": lambda p: torch.optim.AdamW(p, RATE, weight_decay=DECAY),
    "fedavg+adamw:state=average": lambda p: torch.optim.AdamW(p, RATE, weight_decay=DECAY),
    "csgd+adamw:state=keep": lambda p: torch.optim.AdamW(p, RATE, weight_decay=DECAY),
}
"""One client whose memory lives on is a central optimiser, whatever the number of rounds and steps."""


@pytest.mark.parametrize("spelled", PYTORCH)
def test_one_client_is_an_optimiser_of_pytorch(spelled: str) -> None:
    found = gap(ours(spelled), theirs(PYTORCH[spelled]))
    assert found < 1e-12


class DecoupledSGD(torch.optim.SGD):
    """PyTorch's SGD, with w ← w − ηλw beside the step."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.mul_(1 - RATE * DECAY)
        return super().step(closure)


def test_decoupled_decay_stays_out_of_the_momentum() -> None:
    mine = ours("fedavg+sgd:momentum=0.9,decay=decoupled,state=keep")
    assert gap(mine, theirs(lambda p: DecoupledSGD(p, RATE, 0.9))) < 1e-12
    assert gap(mine, ours("fedavg+sgd:momentum=0.9,state=keep")) > 1e-3


@pytest.mark.parametrize("spelled", ["fedavg+sgd", "fedavg+adamw", "fedavg+muon"])
def test_a_memory_that_is_reset_begins_anew_in_each_round(spelled: str) -> None:
    kept, reset = ours(f"{spelled}{':' if ':' not in spelled else ','}state=keep"), ours(spelled)
    assert gap(kept, reset) > 1e-3
    if spelled == "fedavg+adamw":
        assert gap(reset, theirs(lambda p: torch.optim.AdamW(p, RATE, weight_decay=DECAY), renewed=True)) < 1e-12


@pytest.mark.parametrize("spelled", ["fedavg+muon", "fedacg+adam"])
def test_one_client_s_average_is_what_it_would_keep(spelled: str) -> None:
    assert gap(ours(f"{spelled}:state=average"), ours(f"{spelled}:state=keep")) < 1e-12


def test_fednag_is_averaged_nesterov_momentum() -> None:
    """v of FedNAG is −ηb where η is constant; Yang et al. 2022, Eq. 2–4."""
    settings: dict[str, Any] = {"participation": 1.0, "rate_decay": 1.0, "weight_decay": 0.0}
    nag = played(experiment("fednag:gamma=0.6", **settings))[1].model
    sgd = played(experiment("fedavg+sgd:momentum=0.6,nesterov=true,state=average", **settings))[1].model
    assert distance(nag.theta, sgd.theta) < 1e-12
    velocity, buffer = nag.server["server.velocity_mean"]["velocity"], sgd.server["server.optimiser_mean"]["buffer"]
    assert distance(velocity, -SMALL.rate * buffer) < 1e-12


# ── Muon ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def drawn(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, columns)))


@pytest.mark.parametrize("shape", [(6, 6), (12, 5), (5, 12), (1, 7)])
def test_newton_schulz_is_the_polynomial_of_the_singular_values(shape: tuple[int, int]) -> None:
    """U p(p(p(p(p(S/‖S‖))))) Vᵀ with the factors of an exact decomposition: the float64 reference."""
    matrix = drawn(*shape)
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    a, b, c = COEFFICIENTS
    s = s / s.norm()
    for _ in range(5):
        s = a * s + b * s**3 + c * s**5
    assert float((orthogonalised(matrix) - u @ torch.diag(s) @ v).abs().max()) < 1e-12
    assert float(s.min()) > 0.68
    assert float(s.max()) < 1.21
    polar = u @ v
    assert float(torch.linalg.matrix_norm(orthogonalised(matrix) - polar, 2)) < 0.33


def test_an_orthogonal_matrix_stays_one_up_to_its_scale() -> None:
    u = torch.linalg.qr(drawn(8, 8)).Q
    found = orthogonalised(3.0 * u)
    scale = float((found * u).sum() / 8)
    assert float((found - scale * u).abs().max()) < 1e-12
    assert 0.68 < scale < 1.21


def test_muon_is_pytorch_s_on_matrices() -> None:
    """To the precision of bfloat16, in which PyTorch takes the powers of a matrix; one step from a common gradient."""
    w, g = (Vector({"a": drawn(12, 5, seed), "b": drawn(5, 12, seed + 1)}) for seed in (1, 3))
    chosen = local.muon(momentum=0.9, matrices="all").for_model({"a": "matrix", "b": "matrix"})
    memory, step = chosen.optimiser_state(w), torch.optim.Muon
    parameters = [nn.Parameter(leaf.clone()) for leaf in w.leaves.values()]
    other = step(parameters, lr=0.1, momentum=0.9, weight_decay=0.0)
    for turn in range(3):
        gradient = g * (1.0 + turn) + w * 0.1
        direction, memory = chosen.direction(w, gradient, memory, None)  # type: ignore[arg-type]
        w = w - 0.1 * direction
        for parameter, leaf in zip(parameters, gradient.leaves.values(), strict=True):
            parameter.grad = leaf.clone()
        other.step()
        size = 0.1 * max(float(leaf.abs().max()) for leaf in direction.leaves.values())
        assert distance(w, Vector(dict(zip(w.leaves, [one.data for one in parameters], strict=True)))) < 0.03 * size * (
            turn + 1
        )


def test_vectors_embeddings_and_the_head_step_by_adamw() -> None:
    """The step of everything that is not a matrix is AdamW's."""
    roles = roles_of(network())
    assert roles == {
        **{f"{at}.bias": "vector" for at in (0, 2, 4)},
        "0.weight": "matrix",
        "2.weight": "matrix",
        "4.weight": "head",
    }
    w = Vector({name: leaf.detach().double() for name, leaf in network().named_parameters()})
    gradient = w.map(torch.cos)
    values = (local.muon(beta2=0.999).for_model(roles), local.adamw())
    steps = [value.direction(w, gradient, value.optimiser_state(w), None)[0] for value in values]  # type: ignore[arg-type]
    for name, role in roles.items():
        same = float((steps[0].leaves[name] - steps[1].leaves[name]).abs().max()) < 1e-12
        assert same == (role != "matrix")


def test_a_tied_embedding_is_no_head_and_no_matrix() -> None:
    roles = roles_of(gpt_char_small((16,), 20))
    kinds = {role: {name for name, found in roles.items() if found == role} for role in set(roles.values())}
    assert kinds["embedding"] == {name for name in roles if "tokens" in name or "places" in name}
    assert "head" not in kinds
    assert all("weight" in name and "norm" not in name for name in kinds["matrix"])


def test_kernels_are_matrices_of_outputs_against_the_rest() -> None:
    kernel = drawn(4, 18).reshape(4, 2, 3, 3)
    chosen = local.muon(nesterov=False, scale="rms").for_model({"k": "matrix"})
    w = Vector({"k": kernel})
    direction, _ = chosen.direction(w, w, chosen.optimiser_state(w), None)  # type: ignore[arg-type]
    expected = 0.2 * 18**0.5 * orthogonalised(kernel.reshape(4, 18))
    assert float((direction.leaves["k"].reshape(4, 18) - expected).abs().max()) < 1e-9


def test_a_model_without_a_hidden_matrix_is_refused() -> None:
    with pytest.raises(UserError, match="muon: the model has no matrix to orthogonalise"):
        build(SMALL, method("fedavg+muon"), model=nn.Linear(6, 3), **unequal_clients())
    build(SMALL, method("fedavg+muon:matrices=all"), model=nn.Linear(6, 3), **unequal_clients())


# ── in a federation ──────────────────────────────────────────────────────────────────────────────────────────────────

CHAINS = (
    "scaffold+adamw",
    "fedacg+sgd:momentum=0.9",
    "fedavg+adamw:state=keep",
    "feddyn+adam:state=average",
    "mifa+adamw:state=average",
    "scaffold+sgd:momentum=0.9,nesterov=true,state=average",
    "fedavg+muon:state=keep",
    "feddc+muon:state=average",
    "gradma+sgd:state=keep",
)
SETTINGS: dict[str, Any] = {"rounds": 3, "rate": 0.05}


@pytest.mark.parametrize("spelled", CHAINS)
def test_executors_agree_on_chains(spelled: str) -> None:
    """Serial, batched and pool within 1e-10, for unequal clients: model, server, clients, losses and bytes."""
    chosen = experiment(spelled, **SETTINGS)
    mine = ClientStates()
    reference, end = played(chosen, "serial", mine)
    for executor in ("batched", "pool"):
        store = ClientStates()
        records, other = played(chosen, executor, store)
        assert distance([end.model.theta, end.model.server], [other.model.theta, other.model.server]) < 1e-10
        assert mine.states.keys() == store.states.keys()
        assert all(distance(mine.states[client], store.states[client]) < 1e-10 for client in mine.states)
        for one, two in zip(reference, records, strict=True):
            assert one["train_loss"] == pytest.approx(two["train_loss"], abs=1e-10)
            assert (one["bytes_up"], one["bytes_down"]) == (two["bytes_up"], two["bytes_down"])


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("executor", ["serial:compiled", "batched:compiled"])
@pytest.mark.parametrize(
    "spelled", [*CHAINS[:4], "fedavg+muon:state=average", "fedcm+sam", "scaffold+lesam", "fedavg+asam"]
)
def test_compiled_executors_agree_on_chains(spelled: str, executor: str) -> None:
    chosen = experiment(spelled, **SETTINGS)
    _, end = played(chosen, "serial")
    hand = make_executor(executor, chosen)
    try:
        *_, (_, other) = simulate(chosen, hand, ClientStates(), begin(chosen))
    finally:
        hand.close()
    assert distance([end.model.theta, end.model.server], [other.model.theta, other.model.server]) < 1e-10


SAMPLED = {
    ("scaffold+adamw:state=keep", "serial"),
    ("scaffold+adamw:state=keep", "batched"),
    ("fedavg+muon:state=average", "serial"),
    ("fedavg+sgd:state=keep", "pool"),
}
PRODUCT = [
    (f"{base}+{optimiser}{',' if ':' in optimiser else ':'}state={state}", executor)
    for base in ("fedavg", "scaffold")
    for optimiser in ("sgd", "sgd:nesterov=true", "adam", "adamw", "muon")
    for state in ("reset", "keep", "average")
    for executor in EXECUTORS
]
"""Every optimiser with every life of its memory in every executor: `make soak` plays those that are not sampled."""


@pytest.mark.parametrize(
    ("spelled", "executor"), [one if one in SAMPLED else pytest.param(*one, marks=pytest.mark.soak) for one in PRODUCT]
)
def test_a_chain_resumes_exactly(spelled: str, executor: str, tmp_path: Path) -> None:
    """Bit for bit in the same executor, and within 1e-10 of serial; what clients keep is in the checkpoint."""
    chosen, whole = experiment(spelled), ClientStates()
    _, straight = played(chosen, executor, whole)
    store = ClientStates()
    _, halfway = played(experiment(spelled, rounds=2), executor, store)
    Checkpoint(tmp_path, chosen).save(halfway, store, executor)
    progress, states = Checkpoint(tmp_path, chosen).reopen()
    hand = made_by(executor, chosen)
    try:
        for _, progress in simulate(chosen, hand, states, progress):  # noqa: B007, B020
            pass
    finally:
        hand.close()
    ends = zip(
        leaves_of([straight.model.theta, straight.model.server, whole.states]),
        leaves_of([progress.model.theta, progress.model.server, {name: states.get(name) for name in whole.states}]),
        strict=True,
    )
    assert all(torch.equal(one, two) for one, two in ends)
    assert distance(straight.model.theta, played(chosen)[1].model.theta) < 1e-10


def test_the_sample_is_of_the_product() -> None:
    assert set(PRODUCT) >= SAMPLED


@pytest.mark.parametrize("spelled", ["scaffold+adamw:state=average", "fedavg+sgd:state=keep", "fedavg+adam"])
def test_bytes_are_what_the_memory_takes(spelled: str) -> None:
    """State that travels is counted each way; state that stays, with the client."""
    chosen, store = experiment(spelled, rounds=2), ClientStates()
    records, end = played(chosen, store=store)
    size = nbytes(end.model.theta)
    scaffold, averaged = spelled.startswith("scaffold"), "average" in spelled
    travels = size * (1 + scaffold + 2 * averaged) + 16 * averaged
    for record in records:
        assert record["bytes_down"] == record["bytes_up"] == travels * len(record["clients"])
    kept = size * (scaffold + ("keep" in spelled))
    assert all(nbytes(state["slots"]) == kept for state in store.states.values())
    assert cost(chosen.method).up == pytest.approx(1 + scaffold + 2 * averaged, rel=1e-3)


@dataclass(frozen=True)
class as_it_is:
    """An optimiser that steps along what it is given, and does not say so."""

    optimises = True

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return gradient, memory


@pytest.mark.parametrize("name", ["scaffold", "feddc", "feddc:program=true"])
def test_control_variates_are_mean_gradients_under_any_optimiser(name: str) -> None:
    """Summed up during the round they are −Δ/(Ση) where the step is along the gradient, also where the rate falls."""
    settings: dict[str, Any] = {"weight_decay": 0.0, "rate_decay_epoch": 0.5}
    catalogue = method(name)
    mine = Method(
        broadcast=catalogue.broadcast,
        objective=catalogue.objective,
        local=(*(part for part in catalogue.local if part != local.sgd()), as_it_is()),
        server=catalogue.server,
    )
    stores = ClientStates(), ClientStates()
    ends = [played(experiment(each, **settings), store=store)[1] for each, store in zip((catalogue, mine), stores)]  # noqa: B905
    assert distance(ends[0].model.theta, ends[1].model.theta) < 1e-12
    assert all(distance(stores[0].states[client], stores[1].states[client]) < 1e-12 for client in stores[0].states)


def test_scaffold_s_variates_do_not_grow_with_the_momentum() -> None:
    """c_i is a mean gradient: with momentum 0.9 steps are up to ten times larger, and c_i is not."""
    sizes = {}
    for spelled in ("scaffold", "scaffold+sgd:momentum=0.9"):
        store = ClientStates()
        played(experiment(spelled, rounds=1, steps=20, rate=1e-5), store=store)
        sizes[spelled] = [float(state["slots"]["local.controlled"]["c"].norm()) for state in store.states.values()]  # type: ignore[attr-defined]
    assert sizes["scaffold+sgd:momentum=0.9"] == pytest.approx(sizes["scaffold"], rel=0.05)


def test_a_mean_direction_that_nobody_declared_is_refused_under_another_optimiser() -> None:
    class reading:
        provides = ("upload:mine",)

        def direction(self, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
            return gradient, memory

        def finish(self, end: Any, memory: Any, kept: Any) -> Any:
            return {"mine": end.mean_direction}, {}

    played(experiment(Method(local=reading()), rounds=1))
    with pytest.raises(UserError, match=r'add needs = \("local:mean_direction",\)'):
        played(experiment(Method(local=(reading(), local.adamw())), rounds=1))


def test_padding_that_an_optimiser_sees_is_found() -> None:
    """The probe of filler rows takes the step through the whole chain."""

    class across:
        optimises = True

        def direction(self, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
            return gradient * (1 + step.batch.x.square().sum()), memory

    assert coupling.found(experiment(Method(local=across())), 4) == "filler rows change the local rule's direction"
    for spelled in ("scaffold+adamw:state=keep", "fedavg+muon:state=average", "fedavg+adam"):
        assert coupling.found(experiment(spelled), 4) == ""


REFUSED = {
    "fedcm+adamw": ("mixed(alpha=0.1) needs 'gradient_steps'", "step by plain SGD"),
    "fednag+sgd": ("both set the local slot", "nesterov(gamma=0.9)", "sgd(momentum=0.9)"),
    "cnag+muon": ("both set the local slot", "nesterov("),
    "fedavg+adam+adamw": ("both set the local slot", "decay='decoupled'"),
    "fedpaq+adamw:state=average": ("averages second moments", "quantised(bits=8"),
    "fedavg+sgd:momentum=0,nesterov=true": ("sgd: nesterov, decay and state are about a momentum",),
    "fedavg+adamw:state=forget": ("state is 'forget'; allowed: reset, keep, average",),
    "fedavg+adamw:beta1=1": ("beta1 is 1; allowed: 0 ≤ beta1 < 1",),
}


@pytest.mark.parametrize("spelled", REFUSED)
def test_what_has_no_meaning_is_refused_in_a_sentence(spelled: str) -> None:
    with pytest.raises(UserError) as refusal:
        method(spelled)
    assert "\n" not in str(refusal.value)
    for words in REFUSED[spelled]:
        assert words in str(refusal.value)


def test_the_order_of_a_chain_follows_from_its_values() -> None:
    """A tuple is sorted by what its values are; corrections stay in the order they are given in."""
    chain = (local.adamw(), local.gradient_memory(), local.delta_changes())
    assert Method(local=chain).local == (local.gradient_memory(), local.delta_changes(), local.adamw())
    assert Method(local=(local.sgd(), local.delta_changes())).local == (local.delta_changes(),)
    assert method("scaffold+adamw") == method("fedavg+adamw+scaffold")
    assert method("fedavg+sgd:momentum=0") == method("fedavg")
    with pytest.raises(UserError, match="cannot both be its optimiser"):
        Method(local=(local.adamw(), local.nesterov(0.9)))
    with pytest.raises(UserError, match="takes the round's mean direction for its own"):
        Method(local=(local.controlled(), local.gradient_memory()), broadcast=hw.vector("control"))


def test_an_averaged_optimiser_by_hand_says_what_it_misses() -> None:
    adamw = local.adamw(state="average")
    with pytest.raises(UserError, match=r"needs 'first' from the broadcast slot.*hw.server.optimiser_mean\(o\)"):
        Method(local=adamw)
    with pytest.raises(UserError, match=r"optimiser_mean\(.* needs 'first' from the local slot"):
        Method(local=local.adamw(), server=hw.server.optimiser_mean(adamw))
    whole = Method(local=adamw, broadcast=hw.broadcast.vectors(adamw.averaged), server=hw.server.optimiser_mean(adamw))
    assert whole == method("fedavg+adamw:state=average")
