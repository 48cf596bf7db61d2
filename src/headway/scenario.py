"""`Scenario`: every setting of a run in a frozen record; each field is also a TOML key and a command-line flag.

>>> Scenario(rounds=30).changed(clients=50, participation=0.2).cohort
10
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack, cast

from headway import elsewhere, scenario_names
from headway.errors import UserError, nearest
from headway.executors import EXECUTORS
from headway.scenario_names import PROFILES, TASK_NAMES, Value
from headway.schedules import DEFAULT_DECAY, schedule
from headway.setting_values import in_limits, in_type, toml_value
from headway.typed_settings import ScenarioSettings

ROLES = ("problem", "training", "watching", "execution", "identity")
"""What a setting decides: which federated problem is solved, how the model is trained, what is watched meanwhile, where
and how it is executed (up to rounding, no number depends on that), and which of several runs a run is."""

_ROLE_OF_GROUP = {"run": "identity", "data": "problem", "stragglers": "problem", "model": "problem"}
_ROLE_OF_GROUP |= {"training": "training", "watching": "watching", "privacy": "watching", "execution": "execution"}


def _setting(group: str, default: Value | None, help: str, role: str | None = None, **limits: object) -> Any:
    """A field of `Scenario`: its heading in --help and in TOML, its role where that is not its group's, its limits.

    `later=True`: folders were written before there was this setting. They are compared and named without it where it
    has its default, so that the folder of an earlier version is found again.
    """
    return field(
        default=default, metadata={"group": group, "role": role or _ROLE_OF_GROUP[group], "help": help, **limits}
    )


DEFAULT_PARTICIPATION = 0.1


@dataclass(frozen=True)
class Scenario:
    """A federated problem, how it is trained, how it is watched and how it is executed."""

    method: str | None = _setting("run", None, "method, such as fedacg:lam=0.9 or fedprox+acg")
    seed: int = _setting("run", 0, "first seed of the run (clients chosen, batches, initial model)", least=0)
    seeds: int = _setting("run", 1, "how many seeds, counted up from --seed", least=1, most=10_000)

    data: str = _setting("data", "fashion", "data set; 'fashion' is inside the package")
    data_dir: str | None = _setting(
        "data", None, "folder of the data sets (else $HEADWAY_DATA, else a user cache)", role="execution"
    )
    partition: str = _setting(
        "data",
        "dirichlet:0.3",
        "how samples go to clients: dirichlet:ALPHA, iid, natural, …; 'headway data partitions' lists all",
    )
    split_seed: int = _setting("data", 0, "seed of the split, apart from the run's seed", least=0)
    clients: int = _setting(
        "data", 60, "number of clients N; 0, or none given for natural and file:PATH: all that the split has", least=0
    )
    participation: float | None = _setting(
        "data", None, "share of the clients in each round; 0.1, or what the method suggests", above=0.0, most=1.0
    )
    cohort_size: int | None = _setting(
        "data", None, "number of clients in each round, in place of participation", least=1
    )
    sampling: str = _setting(
        "data", "fixed", "which clients take part: fixed, bernoulli, full, …; 'headway data samplings' lists all"
    )
    weights: str = _setting("data", "size", "aggregation weights", among=("size", "uniform"))
    client_test: float | None = _setting(
        "data",
        None,
        "share of each client's samples held out as its test set; without one, numbers over clients are a proxy",
        above=0.0,
        below=1.0,
    )
    profile: str = _setting(
        "data", "paper", "whose constants images are normalised with; a name's settings follow it too", among=PROFILES
    )
    augmentation: str = _setting(
        "data",
        "none",
        "random views of training images",
        role="training",
        among=("none", "papers", "crop-flip", "half-crop-flip"),
    )

    dropout: float = _setting(
        "stragglers", 0.0, "probability that a client drops out in the middle of a round", least=0.0, below=1.0
    )
    stragglers: str = _setting("stragglers", "lost", "work of one that drops out", among=("lost", "partial"))
    over_selection: float = _setting(
        "stragglers", 0.0, "share of clients invited beyond the cohort; the first to finish count", least=0.0, most=100
    )

    attendance: str | None = _setting(
        "stragglers",
        None,
        "folder of a run whose rounds are played again: who arrived, in which order and with how many steps",
    )
    on_failure: str = _setting(
        "stragglers",
        "stop",
        "a client that fails or diverges: stop the run, or skip the client as if it had dropped out",
        among=("stop", "skip"),
        later=True,
    )

    model: str = _setting("model", "cnn", "network, such as cnn, mlp, resnet18 or lenet5")
    buffers: str = _setting(
        "model", "average", "BatchNorm statistics", role="training", among=("average", "keep-local", "refuse")
    )

    rounds: int = _setting("training", 80, "communication rounds T", least=1, most=10**9)
    epochs: int = _setting("training", 2, "passes over a client's data in a round", least=1, most=10**9)
    steps: int | None = _setting("training", None, "local steps K in a round, in place of epochs", least=1, most=10**9)
    batch_size: int = _setting("training", 20, "samples in a local batch", least=1)
    batches: str = _setting(
        "training", "reshuffled", "new order each round, or one stream across rounds", among=("reshuffled", "continued")
    )
    task: str = _setting(
        "training",
        "auto",
        "what is learnt; auto is classification for whole numbers and regression for others; own is given in Python",
        role="problem",
        among=("auto", *TASK_NAMES, "own"),
        later=True,
    )
    loss: str = _setting(
        "training",
        "auto",
        "cross-entropy for classes and squared error for numbers, or squared error to one-hot classes",
        role="problem",
        among=("auto", "squared"),
    )
    rate: float = _setting("training", 0.05, "local learning rate η", above=0.0, most=1e30)
    schedule: str = _setting(
        "training",
        "exponential",
        "course of η: exponential (by rate_decay), constant, cosine, linear or step:every=N; with options such as "
        ":end=0.1,warmup=5,over=steps",
        later=True,
    )
    rate_decay: float = _setting(
        "training", DEFAULT_DECAY, "factor on η after each round, of the exponential schedule", above=0.0, most=1.0
    )
    rate_decay_epoch: float = _setting("training", 1.0, "factor on η after each local epoch", above=0.0, most=1.0)
    weight_decay: float = _setting("training", 0.001, "L2 weight decay, after clipping", least=0.0, most=1e30)
    clip: float = _setting("training", 10.0, "largest norm of a local gradient; 0: no clipping", least=0.0, most=1e30)
    clipping: str = _setting("training", "gradient", "what is clipped", among=("gradient", "corrected"), later=True)

    metrics: str | None = _setting(
        "watching",
        None,
        "metrics beside the task's own, the headline first: mae, top5, torchmetrics:F1Score:task=binary, …",
    )
    target: float | None = _setting(
        "watching", None, "what the smoothed headline is to reach: an accuracy as a share such as 0.8, or a loss"
    )
    eval_every: int = _setting("watching", 1, "rounds between evaluations", least=1)
    eval_samples: int | None = _setting("watching", None, "test samples, evenly spread over the set; else all", least=1)
    validation: float | None = _setting(
        "watching",
        None,
        "share of each client's samples held out of training; all scores are then on these, not on a test set",
        above=0.0,
        below=1.0,
    )
    global_loss: bool = _setting("watching", False, "also measure the loss on all clients' data")
    score_received: bool = _setting("watching", False, "also score φ, which clients receive next", later=True)
    smoothing: float = _setting("watching", 0.9, "weight of the past in the smoothed headline", least=0.0, below=1.0)
    stop_at_target: bool = _setting("watching", False, "end when the smoothed headline reaches the target")
    patience: int | None = _setting(
        "watching",
        None,
        "end after this many evaluations in a row without a better headline; give --validation, too",
        least=1,
    )
    keep_checkpoints: int | None = _setting(
        "watching", None, "rounds between states that headway analyse needs", role="execution", least=1
    )
    keep_best: bool = _setting(
        "watching", False, "also keep the model of the best headline, for export --best", role="execution"
    )
    diagnose: str | None = _setting(
        "watching", None, "also measure how clients agree, forget", among=("cosines", "forgetting", "all")
    )
    delta: float | None = _setting(
        "privacy", None, "δ of the (ε, δ) of a method with +dp; 1e-5 if not given", above=0.0, below=1.0
    )
    epsilon: float | None = _setting(
        "privacy", None, "with +dp, end before a round that would spend more than this ε", above=0.0
    )
    accountant: str | None = _setting(
        "privacy", None, "how ε is accounted; pld, the tighter, if not given", among=("pld", "rdp")
    )

    device: str = _setting("execution", "auto", "cpu, cuda, cuda:N or auto")
    executor: str = _setting("execution", "auto", "how clients are executed", among=EXECUTORS)
    precision: str = _setting(
        "execution",
        "auto",
        "arithmetic of local training; auto is tf32 on a GPU and fp32 on a CPU",
        role="training",
        among=("auto", "fp32", "fp64", "tf32", "bf16"),
    )
    deterministic: bool = _setting("execution", False, "the same bits on repetition and after a resume")
    client_state_mb: float | None = _setting(
        "execution", None, "megabytes of client state in memory before the rest goes to a file", above=0.0, most=1e9
    )
    checkpoint_every: int | None = _setting(
        "execution",
        None,
        "rounds between checkpoints; else as few as a twentieth of the time allows, 10 if deterministic",
        least=1,
    )

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(self):
            object.__setattr__(self, setting.name, _checked(setting, getattr(self, setting.name)))
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise UserError(f"device is '{self.device}'; allowed: auto, cpu, cuda or cuda:N")
        if self.participation is not None and self.cohort_size is not None:
            raise UserError("participation and cohort_size are both given; give one of them")
        schedule(self.schedule).check(self.rounds, self.rate_decay)
        if self.stop_at_target and self.target is None:
            raise UserError("stop_at_target needs a target; set it (--target 0.8)")

    @property
    def share(self) -> float:
        """The share of the clients in each round: `participation`, or its default."""
        return DEFAULT_PARTICIPATION if self.participation is None else self.participation

    @property
    def cohort(self) -> int:
        """|S_t|, the number of clients in a round: max(⌊participation · N⌋, 1), or `cohort_size`."""
        if self.cohort_size is not None:
            return self.cohort_size
        return max(math.floor(self.share * self.clients + 1e-9), 1)

    def changed(self, /, **settings: Unpack[ScenarioSettings]) -> Scenario:
        """This scenario with other values; an unknown name is refused.

        A new participation takes the place of cohort_size, and a new cohort_size that of participation.
        """
        return self.with_settings(settings)

    def with_settings(self, settings: Mapping[str, Any]) -> Scenario:
        """`changed`, for settings whose names are known only when the program runs."""
        for name in settings:
            _known(name)
        others = (("participation", "cohort_size"), ("cohort_size", "participation"))
        without = {other: None for name, other in others if settings.get(name) is not None}
        return dataclasses.replace(self, **{**without, **settings})

    def as_dict(self) -> dict[str, Value]:
        """The fields that are set; what is None is left out, as in TOML."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

    def as_toml(self, comments: bool = False) -> str:
        """The scenario as a TOML file; settings that are None are commented out. `comments` says what each means."""
        lines: list[str] = []
        group = ""
        for setting in dataclasses.fields(self):
            value = getattr(self, setting.name)
            if setting.metadata["group"] != group:
                group = setting.metadata["group"]
                lines += [f"# {group}"] if not lines else ["", f"# {group}"]
            line = f"{'# ' if value is None else ''}{setting.name} = {toml_value(value)}".rstrip()
            lines.append(f"{line:<36}# {explained(setting)}" if comments else line)
        return "\n".join(lines) + "\n"


def settings_of(*roles: str) -> frozenset[str]:
    """The names of the settings that have one of these roles."""
    assert set(roles) <= set(ROLES), f"unknown roles among {roles}"
    return frozenset(setting.name for setting in dataclasses.fields(Scenario) if setting.metadata["role"] in roles)


LATER = frozenset(setting.name for setting in dataclasses.fields(Scenario) if "later" in setting.metadata)
"""Settings that are newer than the first folders."""
FREE = settings_of("execution")
"""Settings that say where and how a run is executed: up to rounding, its numbers do not depend on them."""


def explained(setting: dataclasses.Field[object]) -> str:
    """What a setting means, and the words that it may be, as --help says it."""
    words: str = setting.metadata["help"]
    return f"{words} ({', '.join(setting.metadata['among'])})" if "among" in setting.metadata else words


def _known(name: str) -> None:
    names = [setting.name for setting in dataclasses.fields(Scenario)]
    if name not in names:
        hint = elsewhere.pointer(name)
        raise UserError(f"a scenario has no setting '{name}'{f'; {hint}' if hint else nearest(name, names)}")


_TYPES = typing.get_type_hints(Scenario)


def field_type(name: str) -> tuple[type, bool]:
    """The type of a setting, and whether it may be None."""
    hint = _TYPES[name]
    if isinstance(hint, types.UnionType):
        return next(kind for kind in typing.get_args(hint) if kind is not type(None)), True
    return hint, False


def _checked(setting: dataclasses.Field[object], given: object) -> Value | None:
    """The value in its declared type and inside its limits, or a `UserError` that says what is allowed."""
    kind, optional = field_type(setting.name)
    if given is None and optional:
        return None
    return in_limits(setting.name, in_type(setting.name, given, kind), setting.metadata)


COUNTING_PARTITIONS = ("natural", "file")
"""Partitions that say themselves how many clients there are."""


def _with_all_clients(made: Scenario, given: Iterable[str]) -> Scenario:
    """The scenario; with every client of its partition, where that counts them and `clients` was not given."""
    counts = made.partition.partition(":")[0] in COUNTING_PARTITIONS
    return made.changed(clients=0) if counts and "clients" not in given else made


def from_toml(text: str, origin: str, changes: Mapping[str, object] = MappingProxyType({})) -> Scenario:
    """The scenario of a TOML file's text, with some settings changed; errors name `origin`, the file."""
    try:
        settings = tomllib.loads(text)
    except ValueError as fault:  # a number of thousands of digits, too
        raise UserError(f"{origin} is not valid TOML: {fault}") from None
    except RecursionError:
        raise UserError(f"{origin} is not a scenario: its values are nested too deeply") from None
    table = next((name for name, value in settings.items() if isinstance(value, dict)), None)
    if table is not None:
        raise UserError(f"{origin}: settings are plain keys, without tables such as [{table}]")
    try:
        made = Scenario().with_settings(settings)
    except UserError as fault:
        raise UserError(f"{origin}: {fault}") from None
    return _with_all_clients(made.with_settings(changes), {**settings, **changes})


def from_name(name: str, settings: Mapping[str, object] = MappingProxyType({})) -> Scenario:
    """The scenario of a name: `cifar10/dir0.3/100x5%` says data, split, and clients × how many take part.

    The papers' settings for these come with it; `settings` change them, and what the profile changes along with them.
    """
    profile = cast(str, settings.get("profile", "paper"))
    named = Scenario().with_settings(scenario_names.settings(name, profile))
    return named.with_settings(scenario_names.followed(profile, settings))


def scenario(source: str | Path | Scenario = "", **settings: Unpack[ScenarioSettings]) -> Scenario:
    """A scenario from a name, a TOML file or a run's folder, with some settings changed; "" is the default scenario."""
    return scenario_of(source, settings)


def scenario_of(source: str | Path | Scenario, settings: Mapping[str, object]) -> Scenario:
    """`scenario`, for settings whose names are known only when the program runs."""
    if isinstance(source, Scenario):
        return source.with_settings(settings)
    if not isinstance(source, str | os.PathLike):
        raise UserError(f"scenario is of type {type(source).__name__}; give a name, a path or a headway.Scenario")
    if not str(source):
        return _with_all_clients(Scenario().with_settings(settings), settings)
    path = Path(source)
    if os.path.isdir(path):
        path = path / "scenario.toml"
    if os.path.isfile(path):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            raise UserError(f"{path} cannot be read as UTF-8 text: {fault}") from None
        return from_toml(text, str(path), settings)
    if path.suffix == ".toml":
        raise UserError(f"there is no scenario file {path}")
    return from_name(str(source), settings)
