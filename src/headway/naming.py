"""Scenarios by name: `DATA/SPLIT/CLIENTSxTAKING`, and the settings that the papers train that data with.

cifar10/dir0.3/100x5%      100 clients, 5 % of them in each round, balanced Dirichlet split with α = 0.3
cifar10/authors0.3/100x5%  the same with the class mixes of the split of FedACG's authors
mnist/gradma0.01/100x10    100 clients, 10 of them; GradMA's split with ω = 0.01
synthetic:1,1/shards2/30x10, mnist/quantity0.5/50x10%, fashion/iid/60x6
femnist/natural/5%         every user of the data, 5 % of them; femnist/natural/10: every user, 10 of them
femnist/natural/200x10     the first 200 users

A name stands for settings, no more: they are written into the scenario, and any of them can be changed after.
"""

from __future__ import annotations

import re
from typing import Any

from headway.errors import UserError, nearest

Settings = dict[str, Any]

PROFILES = ("paper", "agm21", "acg24", "gradma-code")
"""What the texts say, the programs of FedACG's authors of 2021 and of 2024, and GradMA's program."""

EXAMPLES = (
    "fashion/dir0.3/60x10%, fashion/iid/60x6, cifar10/dir0.3/100x5%, mnist/gradma0.01/100x10 or femnist/natural/5%"
)

_NUMBER = r"\d+(?:\.\d+)?"
_SPLIT = re.compile(
    rf"(?P<plain>iid|natural)|(?P<name>dir|authors|gradma|quantity)(?P<value>{_NUMBER})|shards(?P<shards>\d+)"
)
_WHO = re.compile(rf"(?:(?P<clients>\d+)x)?(?P<taking>{_NUMBER})(?P<percent>%?)")


def settings(name: str, profile: str = "paper") -> Settings:
    """The settings that a name and a profile stand for; what they leave out has the scenario's default."""
    if profile not in PROFILES:
        raise UserError(f"profile is '{profile}'; allowed: {', '.join(PROFILES)}{nearest(profile, PROFILES)}")
    data, split, who = name.rsplit("/", 2) if name.count("/") >= 2 else ("", "", "")
    found, taking = _SPLIT.fullmatch(split), _WHO.fullmatch(who)
    natural = split == "natural"
    if not data or found is None or taking is None or (taking["clients"] is None and not natural):
        raise UserError(f"there is no scenario file '{name}', and it is no name such as {EXAMPLES}")
    clients = int(taking["clients"] or 0)
    chosen = {"data": data, "partition": _partition(found), "clients": clients, "profile": profile}
    return chosen | _participation(name, taking, clients) | _recipe(data, split, clients, profile)


def followed(profile: str, changes: Settings) -> Settings:
    """Changes with what a profile ties to them: the program of 2024 has one decay, of rounds and of local epochs."""
    if profile != "acg24" or "rate_decay" not in changes:
        return changes
    return {"rate_decay_epoch": changes["rate_decay"], **changes}


def _partition(found: re.Match[str]) -> str:
    if found["plain"]:
        return found["plain"]
    if found["shards"]:
        return f"shards:{found['shards']}"
    return f"{'dirichlet' if found['name'] == 'dir' else found['name']}:{found['value']}"


def _participation(name: str, taking: re.Match[str], clients: int) -> Settings:
    if taking["percent"]:
        return {"participation": float(taking["taking"]) / 100}
    number = float(taking["taking"])
    if not number.is_integer():
        raise UserError(f"'{name}': {number:g} clients cannot take part; write a whole number, or a share such as 5%")
    if taking["clients"] is not None and number > clients:
        raise UserError(f"'{name}': {number:g} of {clients} clients cannot take part")
    return {"cohort_size": int(number)}


# how the papers and their authors' programs train; docs/scenarios.md gives the sources

_ACG_SAMPLES = {"cifar10": 50_000, "cifar100": 50_000, "tiny-imagenet": 100_000}
_GRADMA: dict[str, tuple[str, int, int]] = {
    "mnist": ("gradma-mlp", 500, 1),
    "fashion-mnist": ("gradma-mlp", 500, 1),
    "cifar10": ("gradma-lenet", 1000, 1),
    "cifar100": ("vgg11", 2000, 1),
    "tiny-imagenet": ("resnet20", 2000, 5),
}
"""Model, rounds, rounds between evaluations."""


def _recipe(data: str, split: str, clients: int, profile: str) -> Settings:
    name = data.partition(":")[0]
    gradma = profile == "gradma-code" or split.startswith("gradma")
    if name in _ACG_SAMPLES and not gradma:
        chosen = _acg(_ACG_SAMPLES[name], clients)
    elif name in _GRADMA:
        chosen = _gradma(name, profile)
    else:
        chosen = dict(_OTHERS.get(name, {}))
    if profile == "agm21":
        chosen |= {"weights": "size"}
    if profile == "acg24":
        # uniform weights, and η decays after every local epoch too
        chosen |= {"weights": "uniform", "rate_decay_epoch": chosen.get("rate_decay", 0.998)}
    return chosen


_COMMON: Settings = {"rounds": 1000, "epochs": 5, "rate": 0.1, "rate_decay": 0.998, "weight_decay": 0.001, "clip": 10.0}


def _acg(samples: int, clients: int) -> Settings:
    """FedACG and FedAGM: 5 epochs of 10 batches, whatever the number of clients; CIFAR: 50 for 100, 10 for 500."""
    batch = max(samples // (10 * clients), 1) if clients else 50
    return {**_COMMON, "model": "resnet18", "batch_size": batch, "augmentation": "papers"}


def _gradma(name: str, profile: str) -> Settings:
    """GradMA: 5 steps of 64, plain SGD, raw accuracy. Its rate is one of 0.001, 0.01, 0.1, which for what is not said.

    The program weights by n_i where the paper has 1/S, reads one endless stream of batches for each worker, and crops
    and mirrors CIFAR; its README trains CIFAR-10 with 0.001.
    """
    model, rounds, evaluated = _GRADMA[name]
    chosen: Settings = {
        "model": model,
        "rounds": rounds,
        "eval_every": evaluated,
        "steps": 5,
        "batch_size": 64,
        "rate": 0.01,
        "rate_decay": 1.0,
        "weight_decay": 0.0,
        "clip": 0.0,
        "smoothing": 0.0,
        "weights": "uniform",
    }
    if profile == "gradma-code":
        chosen |= {"weights": "size", "batches": "continued"}
        chosen |= {"augmentation": "crop-flip"} if name.startswith("cifar") else {}
        chosen |= {"rate": 0.001} if name == "cifar10" else {}
    return chosen


_LEAF: Settings = {**_COMMON, "rounds": 500}
_OTHERS: dict[str, Settings] = {
    "femnist": {**_LEAF, "model": "femnist-cnn", "batch_size": 20},
    "celeba": {**_LEAF, "model": "celeba-cnn", "batch_size": 5},
    "shakespeare": {
        **_COMMON,
        "model": "shakespeare-lstm",
        "epochs": 1,
        "batch_size": 50,
        "rate": 1.0,
        "weight_decay": 0.0,
        "eval_samples": 20_000,
    },
    "synthetic": {
        "model": "linear",
        "rounds": 200,
        "epochs": 20,
        "batch_size": 10,
        "rate": 0.01,
        "rate_decay": 1.0,
        "weight_decay": 0.0,
        "clip": 0.0,
    },
}
"""LEAF: the papers give model and rounds; what they leave open is FedACG's, or chosen here so that it learns.
synthetic(α, β): FedProx (Li et al. 2020)."""
