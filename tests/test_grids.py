"""Grids of a sweep: every combination, the papers' own, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import SMALL, own_problem
from headway.errors import UserError
from headway.methods.spelling import owner, with_option
from headway.tuning.grid import candidates, grid, named, published
from headway.tuning.sweep import sweep
from test_sweep import QUICK


def test_every_combination_is_a_candidate() -> None:
    found = candidates("fedprox+acg", grid("fedprox+acg", ["lam=0.8,0.9", "rate_decay=0.995,1"]), SMALL)
    assert [one.method for one in found] == ["fedprox+acg:lam=0.8"] * 2 + ["fedprox+acg:lam=0.9"] * 2
    assert [one.settings for one in found] == [{"rate_decay": 0.995}, {"rate_decay": 1.0}] * 2
    assert len({one.folder for one in found}) == 4
    assert [one.method for one in candidates("fedacg", grid("fedacg", {"half": [True, False]}), SMALL)] == [
        "fedacg:half=true",
        "fedacg:half=false",
    ]


def test_options_join_those_that_are_given() -> None:
    assert with_option("fedacg:lam=0.9", "beta", "0.1") == "fedacg:lam=0.9,beta=0.1"
    assert owner("fedacg", "rate") is None
    with pytest.raises(UserError, match="'half' is an argument of fedacg and fedprox"):
        owner("fedacg+fedprox", "half")


@pytest.mark.parametrize("paper", published())
def test_every_grid_of_a_paper_is_one_of_its_method(paper: str) -> None:
    searched = published()[paper]
    assert searched.source
    assert searched.methods
    for name in searched.methods:
        assert candidates(name, grid(name, paper), SMALL)


def test_the_grid_of_the_paper_on_fedacg() -> None:
    values = grid("fedacg", "papers")
    assert values == {"rate_decay": (0.995, 0.998, 1.0), "lam": (0.8, 0.85, 0.9), "beta": (0.1, 0.01, 0.001)}
    assert grid("fedacg", ["papers", "beta=0.01"])["beta"] == (0.01,)
    assert named("fedavgm", "papers")["momentum"] == [0.4, 0.6, 0.8]
    assert named("fedavgm", "gradma")["momentum"] == [0.1, 0.5, 0.9]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["lamda=0.8"], r"'lamda' is neither an argument of fedacg \(lam, beta, half\) .* did you mean 'lam'"),
        (["rate_deccay=1"], "did you mean 'rate_decay'"),
        (["lam=0.8,x"], "fedacg: lam is 'x'; it must be a number"),
        (["lam=0.8,1.5"], "fedacg: lam is 1.5; allowed"),
        (["rate=-1"], "rate is -1.0; it must be above 0"),
        (["epochs=1.5"], "epochs is '1.5'; it must be a whole number"),
        (["lam=0.8,0.80"], "the grid of 'lam' has 0.8 twice"),
        (["lam=0.8", "lam=0.9"], "the grid of 'lam' is given twice"),
        (["lam="], "fedacg: lam is ''"),
        (["rounds=10,20"], "'rounds' cannot be in a grid"),
        (["smoothing=0,0.9"], "'smoothing' cannot be in a grid"),
        (["seed=0,1"], "'seed' cannot be in a grid"),
        (["paper"], "there is no grid 'paper'; did you mean 'papers'"),
        ([], "no grid given"),
        ({"lam": 0.8}, "it must be a list of values"),
        ({"lam": []}, "has no values"),
    ],
)
def test_a_bad_grid_is_reported_before_anything_runs(asked: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        sweep("fedacg", asked, QUICK, out=tmp_path / "sweep", **own_problem())
    assert not (tmp_path / "sweep").exists()


def test_contradictions_are_reported() -> None:
    with pytest.raises(UserError, match=r"'lam' is in the grid and in 'fedacg:lam=0\.9'"):
        sweep("fedacg:lam=0.9", "lam=0.8,0.9")
    with pytest.raises(UserError, match=r"'rate' is in the grid and set to 0\.1"):
        sweep("fedacg", "rate=0.1,0.2", rate=0.1)
    with pytest.raises(UserError, match="no paper searched a grid for 'fedprox\\+acg'"):
        sweep("fedprox+acg", "papers")
    with pytest.raises(UserError, match="a model of your own is given"):
        sweep("fedacg", "model=cnn,mlp", **own_problem())
    with pytest.raises(UserError, match="leave --stop-at-target out"):
        sweep("fedacg", "lam=0.8", target=0.8, stop_at_target=True)
    with pytest.raises(UserError, match="budget is 5 rounds; 4 candidates of 1 seed in 2 stages need 8"):
        sweep("fedacg", "lam=0.1,0.2,0.3,0.4", budget=5)
