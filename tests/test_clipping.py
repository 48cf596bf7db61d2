"""What is clipped: the gradient before the corrections, or what the corrections make of it."""

from __future__ import annotations

import pytest

from conftest import COMPILED, OTHERS, SMALL, distance, experiment, norm_free, played, unequal_clients
from headway.engine.building import build
from headway.errors import UserError
from headway.methods.method import Method
from headway.methods.slots import State, Step
from headway.methods.spelling import method
from headway.random import built
from headway.vectors import Vector
from iterations import gap, iterates

LITTLE = 0.3
"""A limit that every gradient of the test problem is beyond."""


class Longer:
    """A correction by which every direction is three times as long."""

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return 3.0 * gradient, memory


def one_step(clipping: str, clip: float) -> float:
    """How far a client goes in one step of rate 1 without weight decay."""
    settings = {"steps": 1, "rounds": 1, "rate": 1.0, "weight_decay": 0.0, "clip": clip, "clipping": clipping}
    module = built(norm_free, 7, "test")
    chosen = build(SMALL.changed(**settings), Method(local=Longer()), model=module, **unequal_clients((24,)))
    _, end = played(chosen)
    return float((end.model.theta - chosen.network.parameters).norm())


def test_the_limit_is_of_the_gradient_or_of_what_is_made_of_it() -> None:
    assert one_step("gradient", LITTLE) == pytest.approx(3 * LITTLE, rel=1e-4)
    assert one_step("corrected", LITTLE) == pytest.approx(LITTLE, rel=1e-4)
    assert one_step("corrected", 0.0) == one_step("gradient", 0.0) > 3 * LITTLE


@pytest.mark.parametrize("spelled", ["fedavg", "fedacg", "feddyn", "fedavg+sam", "local-adamw"])
def test_nothing_changes_where_nothing_corrects(spelled: str) -> None:
    """A pull and a dual are parts of the objective, and so of the gradient that is clipped in either case."""
    one, other = (iterates(spelled, clip=LITTLE, clipping=clipping) for clipping in ("gradient", "corrected"))
    assert gap(one, other) == 0


@pytest.mark.parametrize("spelled", ["scaffold", "fedcm", "fedspeed", "mofedsam", "fedgamma"])
def test_corrected_directions_are_clipped_and_it_is_felt(spelled: str) -> None:
    one, other = (iterates(spelled, clip=LITTLE, clipping=clipping) for clipping in ("gradient", "corrected"))
    assert gap(one[1:2], other[1:2]) > 1e-6
    unlimited = (iterates(spelled, clip=0.0, clipping=clipping) for clipping in ("gradient", "corrected"))
    assert gap(*unlimited) == 0


@pytest.mark.parametrize("executor", [*OTHERS, *COMPILED])
@pytest.mark.parametrize("spelled", ["scaffold", "fedspeed", "mofedsam"])
def test_executors_agree(spelled: str, executor: str) -> None:
    chosen = experiment(spelled, "batch_norm_dropout", clip=LITTLE, clipping="corrected")
    (one, end), (two, other) = played(chosen), played(chosen, executor)
    assert distance(end.model.theta, other.model.theta) < 1e-10
    assert [record.get("clipped_share") for record in one] == [record.get("clipped_share") for record in two]
    assert one[-1]["clipped_share"] > 0


def test_another_word_is_refused() -> None:
    with pytest.raises(UserError, match="clipping is 'late'; allowed: gradient, corrected"):
        SMALL.changed(clipping="late")


def test_scaffold_s_control_variates_are_of_the_clipped_steps() -> None:
    """c_i is the mean of what the client stepped along: −Δ_i/(Kη), clipped, so its length is at most the limit."""
    settings = {"rounds": 1, "rate_decay": 1.0, "weight_decay": 0.0, "clip": LITTLE, "clipping": "corrected"}
    chosen = experiment("scaffold", **settings)
    _, end = played(chosen)
    control = next(state["control"] for state in end.model.server.values() if "control" in state)
    assert 0 < float(control.norm()) <= LITTLE * (1 + 1e-9)


def test_the_optimiser_is_given_the_clipped_direction() -> None:
    """Adam's first step is ±η whatever the length, so that only ε sees the clip."""
    one, other = (
        iterates("scaffold+adamw:eps=0.1", rounds=2, clip=LITTLE, clipping=clipping)
        for clipping in ("gradient", "corrected")
    )
    assert gap(one[1:], other[1:]) > 1e-6
    assert method("scaffold+adamw").chain.optimiser is not None
