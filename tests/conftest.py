"""Small building for every test: unequal clients, few samples, float64. And real data, where it is there."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

from headway.data.sources import present
from headway.engine.building import build
from headway.engine.executor import Executor
from headway.engine.experiment import Experiment
from headway.engine.pool import WorkerPool
from headway.engine.selection import make_executor
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.executors import KINDS
from headway.methods.spelling import method
from headway.models.networks import Staged
from headway.random import built, key
from headway.scenario import Scenario
from headway.trees import leaves_of
from headway.vectors import Vector

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # started by a script in the background, where shells ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)

SIZES = (3, 17, 8, 24, 5, 11)


def unequal_clients(
    sizes: tuple[int, ...] = SIZES, features: int = 6, classes: int = 3, seed: int = 0
) -> dict[str, Any]:
    """Clients of unequal size with their own class mixes, and a test set: keyword arguments of `build`."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(classes, features))

    def samples(count: int, mix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = draw.choice(classes, count, p=mix)
        return centres[y] + 0.5 * draw.normal(size=(count, features)), y

    return {
        "clients": [samples(size, draw.dirichlet(np.ones(classes))) for size in sizes],
        "test": samples(40, np.ones(classes) / classes),
    }


def norm_free() -> nn.Module:
    return Staged(nn.Sequential(nn.Linear(6, 5), nn.Tanh()), nn.Linear(5, 3))


def group_norm() -> nn.Module:
    return Staged(nn.Sequential(nn.Linear(6, 8), nn.GroupNorm(2, 8), nn.ReLU()), nn.Linear(8, 3))


def batch_norm_dropout() -> nn.Module:
    return Staged(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4)), nn.Linear(8, 3))


NETWORKS = {"norm_free": norm_free, "group_norm": group_norm, "batch_norm_dropout": batch_norm_dropout}

SMALL = Scenario(
    rounds=4, participation=0.5, epochs=2, batch_size=4, rate=0.1, precision="fp64", device="cpu", smoothing=0.5
)


def experiment(spelled: Any, network: str = "norm_free", **settings: Any) -> Experiment:
    """A small experiment of unequal clients; six of them, three a round."""
    module = built(NETWORKS[network], 7, "test")
    return build(SMALL.changed(**settings), method(spelled), model=module, **unequal_clients())


def own_problem() -> dict[str, Any]:
    """A model and unequal clients for it: keyword arguments of `simulate`, `compare`, `sweep` and `resume`."""
    return {"model": built(norm_free, 7, "test"), **unequal_clients()}


def distance(left: Any, right: Any) -> float:
    """The largest difference between two trees of tensors."""
    pairs = zip(leaves_of(left), leaves_of(right), strict=True)
    return max((float((one.double() - other.double()).abs().max()) for one, other in pairs if one.numel()), default=0.0)


def two_leaves(values: np.ndarray) -> Vector:
    """An array of one or more rows as a vector of two leaves."""
    tensor = torch.from_numpy(np.array(values))
    return Vector({"a": tensor[..., :1], "b": tensor[..., 1:]})


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def key_tensor(seed: int, purpose: str = "test", *coordinates: int) -> Tensor:
    """A key as a step gets it."""
    return torch.tensor(key(seed, purpose, *coordinates))


def refused(ask: Callable[[], Any], *words: str) -> str:
    """What is said, in one line that has all the words, where something is refused."""
    with pytest.raises(UserError) as caught:
        ask()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message
    return message


def timeless(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without what depends on the clock, and without checksums of it."""
    return {name: value for name, value in record.items() if "seconds" not in name and name not in ("chain", "check")}


def round_lines(folder: Path) -> list[dict[str, Any]]:
    """Every line of a run's rounds.jsonl, without what depends on the clock."""
    return [timeless(json.loads(line)) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def made_by(name: str, chosen: Experiment) -> Executor:
    """An executor by its full name; a pool of two workers, however many cores there are."""
    if name.partition(":")[0] == "pool":
        return WorkerPool(chosen, processes=2, compiled=":" in name)
    return make_executor(name, chosen)


ON_A_CPU = {name: kind for name, kind in KINDS.items() if kind.device in (None, "cpu")}
EXECUTORS: dict[str, Callable[[Experiment], Executor]] = {name: functools.partial(made_by, name) for name in ON_A_CPU}
"""Every executor of the table that runs on a CPU, uncompiled."""
OTHERS = [name for name in EXECUTORS if name != "serial"]
"""Those that are held to serial's numbers."""
COMPILING = (
    pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch's compiler itself
)
COMPILED = tuple(
    pytest.param(f"{name}:compiled", marks=[*COMPILING, pytest.mark.soak])
    for name, kind in ON_A_CPU.items()
    if "compiled" in kind.forms
)
"""Compiled executors in a product of all methods: it takes minutes, so `make soak` plays it."""


def played(
    chosen: Experiment, executor: str = "serial", store: ClientStates | None = None
) -> tuple[list[dict[str, Any]], Any]:
    """Every record of a run in memory, and where it ended."""
    hand = made_by(executor, chosen)
    progress = begin(chosen)
    records = []
    try:
        for record, progress in simulate(chosen, hand, store or ClientStates(), progress):  # noqa: B007, B020
            records.append(record)
    finally:
        hand.close()
    return records, progress


settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")  # a machine that is busy with other tests may take long over one example


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes what the user's own runs remember; this one is for fixtures that several tests share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        programs = Path(tempfile.gettempdir()) / f"headway-tests-{os.getuid()}" / "programs"
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(programs))  # compiled programs are kept from test to test
        yield


@pytest.fixture(autouse=True)
def _cache_of_the_test(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A test has nothing to remember when it begins."""
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path_factory.getbasetemp() / "caches" / uuid.uuid4().hex))


UNPACK = Path(__file__).resolve().parents[2] / "shared" / "data" / "unpack.py"
"""A program that writes a data set by its name, where packed data lies beside the repository."""


def held(name: str) -> Path | None:
    """$HEADWAY_DATA, if it holds the data set."""
    folder = os.environ.get("HEADWAY_DATA")
    return Path(folder) if folder and present(name, Path(folder)) else None


def unpacked(name: str, place: Path) -> Path:
    """The data set in its own folder, made once, however many processes ask for it."""
    place.mkdir(exist_ok=True)
    folder = place / name
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            aside = place / f"{name}.part"
            subprocess.run([sys.executable, str(UNPACK), str(aside), name], check=True, capture_output=True)
            aside.rename(folder)
    return folder


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The data folder that holds a real data set: `real_data("mnist")`. The test is skipped where there is none."""

    def folder(name: str) -> Path:
        if (own := held(name)) is not None:
            return own
        if not list(UNPACK.parent.glob(f"{name}_*")):
            pytest.skip(f"neither $HEADWAY_DATA nor {UNPACK.parent} has {name}")
        base = tmp_path_factory.getbasetemp()
        return unpacked(name, (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "real")

    return folder


BROWSER_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1280,1000"
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium without a screen; it is given its driver, so nothing is downloaded."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        missing = "chromium" if chromium is None else "chromedriver"
        pytest.skip(f"{missing} is not installed (Debian: apt-get install chromium chromium-driver, or make browser)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*BROWSER_FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options=options, service=Service(driver))
    yield window
    window.quit()
