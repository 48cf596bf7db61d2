"""A name stands for the papers' settings: every one of them is written down, and can be changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headway.cli.main import app
from headway.data import sources
from headway.engine.building import build
from headway.errors import UserError
from headway.methods.spelling import method
from headway.models.networks import NETWORKS
from headway.scenario import Scenario, from_toml, scenario
from headway.scenario_names import PROFILES

NAMES = (
    "fashion/dir0.3/60x10%",
    "cifar10/dir0.3/100x5%",
    "cifar10/gradma0.01/100x10",
    "cifar100/dir0.6/500x2%",
    "tiny-imagenet/iid/100x5%",
    "mnist/gradma0.01/100x10",
    "mnist/natural/10%",
    "femnist/natural/5%",
    "celeba/natural/10",
    "shakespeare/natural/100x5",
    "synthetic:1,1/natural/30x10",
    "synthetic:0.5,0.5/shards2/30x10",
    "fashion/quantity0.5/50x10%",
    "npz:/some/where.npz/iid/10x2",
)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", NAMES)
def test_every_name_and_profile_is_a_complete_file(name: str, profile: str) -> None:
    made = scenario(name, profile=profile)
    assert made.profile == profile
    assert from_toml(made.as_toml(), "a test") == from_toml(made.as_toml(comments=True), "a test") == made
    assert made.model in NETWORKS


PAPER: dict[str, dict[str, Any]] = {
    # FedACG, appendix A.1: 5 epochs of 10 iterations, whatever the number of clients
    "cifar10/dir0.3/100x5%": {
        "partition": "dirichlet:0.3",
        "participation": 0.05,
        "model": "resnet18",
        "batch_size": 50,
        "epochs": 5,
        "rate": 0.1,
        "rate_decay": 0.998,
        "rate_decay_epoch": 1.0,
        "weight_decay": 0.001,
        "clip": 10.0,
        "rounds": 1000,
        "augmentation": "papers",
        "smoothing": 0.9,
        "weights": "size",
    },
    "cifar100/dir0.6/500x2%": {"partition": "dirichlet:0.6", "clients": 500, "batch_size": 10, "model": "resnet18"},
    "tiny-imagenet/dir0.3/100x5%": {"batch_size": 100},
    "tiny-imagenet/dir0.3/500x2%": {"batch_size": 20},
    # GradMA, section 5: I = 5 steps of 64; T·I = 2,500, 5,000, 10,000
    "mnist/gradma0.01/100x10": {
        "partition": "gradma:0.01",
        "cohort_size": 10,
        "model": "gradma-mlp",
        "steps": 5,
        "batch_size": 64,
        "rounds": 500,
        "weight_decay": 0.0,
        "clip": 0.0,
        "rate_decay": 1.0,
        "smoothing": 0.0,
        "augmentation": "none",
        "weights": "uniform",
    },
    "cifar10/gradma0.1/100x10": {"model": "gradma-lenet", "rounds": 1000, "steps": 5},
    "cifar100/gradma1.0/100x5": {"model": "vgg11", "rounds": 2000},
    "tiny-imagenet/gradma1.0/100x5": {"model": "resnet20", "rounds": 2000, "eval_every": 5},
    # LEAF in FedACG, Tables 6 to 8
    "femnist/natural/5%": {"model": "femnist-cnn", "rounds": 500, "clients": 0, "participation": 0.05},
    "celeba/natural/10": {"model": "celeba-cnn", "clients": 0, "participation": None, "cohort_size": 10},
    "shakespeare/natural/100x5": {"model": "shakespeare-lstm", "rounds": 1000, "clients": 100},
    "synthetic:1,1/natural/30x10": {"data": "synthetic:1,1", "model": "linear"},
    "npz:/some/where.npz/shards2/10x5": {"data": "npz:/some/where.npz", "partition": "shards:2"},
    "fashion/quantity0.5/60x6": {"partition": "quantity:0.5"},
}


@pytest.mark.parametrize("name", list(PAPER))
def test_a_name_is_the_papers_cell(name: str) -> None:
    made = scenario(name)
    assert {key: getattr(made, key) for key in PAPER[name]} == PAPER[name]


# Every recipe: the settings under the profile `paper`, and those that other profiles change in them. What is not named
# has the scenario's default.

FEDACG = {"model": "resnet18", "rounds": 1000, "epochs": 5, "rate": 0.1, "augmentation": "papers"}
GRADMA = {
    **{"steps": 5, "batch_size": 64, "rate": 0.01, "rate_decay": 1.0, "weight_decay": 0.0, "clip": 0.0},
    **{"smoothing": 0.0, "weights": "uniform"},
}
LEAF = {"rounds": 500, "epochs": 5, "rate": 0.1}
SYNTHETIC = {
    **{"model": "linear", "rounds": 200, "epochs": 20, "batch_size": 10},
    **{"rate": 0.01, "rate_decay": 1.0, "weight_decay": 0.0, "clip": 0.0},
}
SIMULATOR = {"weights": "uniform", "sampling": "bernoulli", "clipping": "corrected"}
SIMULATED_CIFAR = {"fl-simulator": {**SIMULATOR, "model": "resnet18-imagenet", "augmentation": "half-crop-flip"}}
UNIFORM = {"acg24": {"weights": "uniform", "rate_decay_epoch": 0.998}, "fl-simulator": SIMULATOR}
CIFAR = {**UNIFORM, **SIMULATED_CIFAR}
GRADMA_PROGRAM = {"weights": "size", "batches": "continued"}
AS_GRADMA = {"agm21": {"weights": "size"}, "gradma-code": GRADMA_PROGRAM, "fl-simulator": SIMULATOR}

RECIPES: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    "fashion/dir0.3/60x10%": ({}, UNIFORM),
    "npz:/some/where.npz/quantity0.5/10x2": ({}, UNIFORM),
    "cifar10/dir0.3/100x5%": (FEDACG | {"batch_size": 50}, CIFAR),
    "cifar10/natural/5%": (FEDACG | {"batch_size": 50}, CIFAR),
    "cifar10/iid/60000x5": (FEDACG | {"batch_size": 1}, CIFAR),
    "cifar100/dir0.6/500x2%": (FEDACG | {"batch_size": 10}, CIFAR),
    "tiny-imagenet/iid/100x5%": (FEDACG | {"batch_size": 100}, UNIFORM),
    "mnist/natural/10%": (GRADMA | {"model": "gradma-mlp", "rounds": 500}, AS_GRADMA),
    "fashion-mnist/dir0.3/100x10": (GRADMA | {"model": "gradma-mlp", "rounds": 500}, AS_GRADMA),
    "cifar10/gradma0.01/100x10": (
        GRADMA | {"model": "gradma-lenet", "rounds": 1000},
        AS_GRADMA | SIMULATED_CIFAR | {"gradma-code": {**GRADMA_PROGRAM, "augmentation": "crop-flip", "rate": 0.001}},
    ),
    "cifar100/gradma1.0/100x5": (
        GRADMA | {"model": "vgg11", "rounds": 2000},
        AS_GRADMA | SIMULATED_CIFAR | {"gradma-code": {**GRADMA_PROGRAM, "augmentation": "crop-flip"}},
    ),
    "tiny-imagenet/gradma1.0/100x5": (GRADMA | {"model": "resnet20", "rounds": 2000, "eval_every": 5}, AS_GRADMA),
    "femnist/natural/5%": (LEAF | {"model": "femnist-cnn", "batch_size": 20}, UNIFORM),
    "celeba/natural/10": (LEAF | {"model": "celeba-cnn", "batch_size": 5}, UNIFORM),
    "shakespeare/natural/100x5": (
        {
            **{"model": "shakespeare-lstm", "rounds": 1000, "epochs": 1, "batch_size": 50, "rate": 1.0},
            **{"weight_decay": 0.0, "eval_samples": 20_000},
        },
        UNIFORM,
    ),
    "synthetic:1,1/natural/30x10": (SYNTHETIC, {"acg24": {"weights": "uniform"}, "fl-simulator": SIMULATOR}),
}
NAMED = {"data", "partition", "clients", "participation", "cohort_size", "profile"}
"""What the name itself and the profile say."""


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_gives_these_settings_and_no_others(name: str, profile: str) -> None:
    row = name
    if profile == "gradma-code" and RECIPES[name][0].get("augmentation") == "papers":  # its own way, under any split
        row = next(other for other in RECIPES if other.startswith(f"{name.split('/')[0]}/gradma"))
    settings, changes = RECIPES[row]
    expected = Scenario().changed(**settings).changed(**changes.get(profile, {}))
    made = scenario(name, profile=profile)
    assert {key: value for key, value in made.as_dict().items() if key not in NAMED} == {
        key: value for key, value in expected.as_dict().items() if key not in NAMED
    }


def test_profiles_carry_what_the_programs_do() -> None:
    """Reference facts 0.2 and E: acg24 weights alike and decays within a round; agm21 does neither."""
    name = "cifar10/dir0.3/100x5%"
    paper, agm21, acg24 = (scenario(name, profile=profile) for profile in ("paper", "agm21", "acg24"))
    assert agm21 == paper.changed(profile="agm21")
    assert acg24 == paper.changed(profile="acg24", weights="uniform", rate_decay_epoch=0.998)
    code = scenario("cifar10/gradma0.01/100x10", profile="gradma-code")
    assert (code.weights, code.batches, code.augmentation, code.rate) == ("size", "continued", "crop-flip", 0.001)
    assert scenario("mnist/gradma0.01/100x10", profile="gradma-code").augmentation == "none"
    assert scenario("cifar10/dir0.3/100x5%", profile="gradma-code").model == "gradma-lenet"


def test_the_program_of_2024_has_one_decay() -> None:
    """η = 0.1·d^r·d^e, so another d is that of rounds and of local epochs, unless both are given."""
    name = "cifar100/dir0.3/100x5%"
    changed = scenario(name, profile="acg24", rate_decay=0.995)
    assert (changed.rate_decay, changed.rate_decay_epoch) == (0.995, 0.995)
    apart = scenario(name, profile="acg24", rate_decay=0.995, rate_decay_epoch=1.0)
    assert (apart.rate_decay, apart.rate_decay_epoch) == (0.995, 1.0)
    assert scenario(name, profile="agm21", rate_decay=0.995).rate_decay_epoch == 1.0


def test_settings_that_are_given_come_last() -> None:
    made = scenario("cifar10/dir0.3/100x5%", profile="acg24", weights="size", batch_size=7, rounds=3)
    assert (made.weights, made.batch_size, made.rounds, made.rate) == ("size", 7, 3, 0.1)
    assert scenario("femnist/natural/10", participation=0.5).cohort_size is None
    assert scenario("femnist/natural/5%", cohort_size=3).participation is None


def test_the_embedded_data_keeps_its_defaults() -> None:
    assert scenario("fashion/dir0.3/60x10%") == Scenario(participation=0.1)


@pytest.mark.parametrize(
    "name",
    [
        "cifar10",
        "cifar10/dir0.3",
        "cifar10/dir/100x5%",
        "cifar10/iid/5%",
        "cifar10/natural/x5",
        "cifar10/natural/",
        "cifar10/shards0.5/9x3",
        "cifar10/dir0.3/100x5%%",
        "cifar10/dir.3/100x5",
        "/iid/10x5",
    ],
)
def test_what_is_no_name_is_one_line_with_examples(name: str) -> None:
    with pytest.raises(UserError, match=r"is not a name such as .*cifar10/dir0\.3/100x5%") as refusal:
        scenario(name)
    assert "\n" not in str(refusal.value)


def test_numbers_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match=r"2\.5 clients cannot take part; write a whole number"):
        scenario("femnist/natural/2.5")
    with pytest.raises(UserError, match="40 of 30 clients"):
        scenario("synthetic:1,1/natural/30x40")
    with pytest.raises(UserError, match=r"profile is 'agm'; allowed: .*did you mean 'agm21'\?"):
        scenario("cifar10/dir0.3/100x5%", profile="agm")


# what the experiment makes of it


@pytest.mark.parametrize(
    ("who", "clients", "cohort"), [("10%", 30, 3), ("10", 30, 10), ("12x3", 12, 3), ("12x50%", 12, 6), ("30", 30, 30)]
)
def test_natural_users_are_counted_when_the_data_is_read(who: str, clients: int, cohort: int) -> None:
    made = build(scenario(f"synthetic:1,1/natural/{who}", device="cpu"), method("fedavg"))
    assert (made.population, made.scenario.clients, made.scenario.cohort) == (clients, clients, cohort)
    assert made.scenario.cohort_size is None
    assert len(made.client_rounds.cohort(1).clients) == cohort


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(UserError, match="cohort_size is 31, but there are 30 clients"):
        build(scenario("synthetic:1,1/natural/31"), method("fedavg"))
    with pytest.raises(UserError, match=r"clients is 0, which means every user, but partition is 'iid'"):
        build(Scenario(clients=0, partition="iid"), method("fedavg"))


def test_a_split_from_a_file_says_how_many_clients_there_are(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("[[0, 1], [2, 3, 4], [5]]")
    made = build(Scenario(clients=0, partition=f"file:{tmp_path / 'mine.json'}", device="cpu"), method("fedavg"))
    assert made.scenario.clients == 3


@pytest.mark.parametrize("profile", PROFILES)
def test_images_are_normalised_as_the_profile_says(profile: str, real_data: Callable[[str], Path]) -> None:
    folder = str(real_data("cifar10"))
    chosen = scenario("cifar10/iid/100x5%", profile=profile, data_dir=folder, model="linear", device="cpu")
    constants = sources.load("cifar10", folder).normalisation(profile)
    federation = build(chosen, method("fedavg")).federation
    assert (federation.mean, federation.std) == (constants.mean, constants.std)
    assert constants.std[0] == {"agm21": 0.2470, "acg24": 0.2023, "gradma-code": 0.2023}.get(profile, constants.std[0])


# on the command line


def test_a_scenario_is_printed_and_taken_back(tmp_path: Path) -> None:
    printed = CliRunner().invoke(
        app, ["scenario", "mnist/gradma0.1/100x10", "--profile", "gradma-code", "--rate", "0.1"]
    )
    assert printed.exit_code == 0
    assert "# local learning rate η" in printed.stdout
    file = tmp_path / "mine.toml"
    file.write_text(printed.stdout, encoding="utf-8")
    assert scenario(file) == scenario("mnist/gradma0.1/100x10", profile="gradma-code", rate=0.1)
    again = CliRunner().invoke(app, ["scenario", str(file)])
    assert again.stdout == printed.stdout


@pytest.mark.parametrize("name", ["fashion/sorted/60x6", "fashion/dir0/60x6", "fashion/shards2.5/60x6"])
def test_a_split_that_the_table_does_not_have_is_not_printed(name: str) -> None:
    answer = CliRunner().invoke(app, ["scenario", name])
    assert isinstance(answer.exception, UserError)
    assert not answer.stdout
