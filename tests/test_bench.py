"""The benchmark: every engine does the same work. No test here looks at a clock."""

from __future__ import annotations

import importlib.util
import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader
from typer.testing import CliRunner

from headway.bench import measure, peer_flower, peers, table
from headway.bench.loop import LocalSGD, PlainLoop, RoundBatches, Variant
from headway.bench.workloads import WORKLOADS, workloads
from headway.cli.main import app
from headway.data.batches import plan
from headway.data.federation import Federation, Samples
from headway.engine.building import build
from headway.engine.executor import CannotExecute, Executor
from headway.engine.experiment import Experiment
from headway.engine.round import run_round
from headway.engine.serial import Serial
from headway.engine.server import initial_state
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods.spelling import method
from headway.models.networks import Staged
from headway.random import built, isolated
from headway.scenario import Scenario

PARAMETERS = {
    "mlp": 239_410,
    "cnn": 1_626_442,
    "lenet": 62_006,
    "resnet18-b50": 11_173_962,
    "resnet18-b10": 11_173_962,
}
WORK = {"mlp": (10, 5, 64), "cnn": (50, 5, 10), "lenet": (10, 5, 64), "resnet18-b50": (5, 50, 50)}
WORK["resnet18-b10"] = (10, 50, 10)


def _images(sizes: tuple[int, ...], shape: tuple[int, ...] = (3, 8, 8)) -> Federation:
    draw = np.random.default_rng(0)
    rows = sum(sizes)
    pool = Samples(
        torch.from_numpy(draw.integers(0, 256, (rows, *shape), dtype=np.uint8)),
        torch.from_numpy(draw.integers(0, 4, rows)),
    )
    clients = np.split(np.arange(rows), np.cumsum(sizes)[:-1])
    return Federation(pool, Samples(pool.x[:4], pool.y[:4]), clients, 4, (0.5, 0.4, 0.3), (0.3, 0.2, 0.1))


def _convolutional() -> nn.Module:
    return Staged(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten()),
        nn.Linear(4 * 36, 4),
    )


def _experiment(**settings: object) -> Experiment:
    scenario = Scenario(
        cohort_size=3, epochs=2, batch_size=5, rate=0.3, clip=0.5, precision="fp64", device="cpu", rounds=9
    ).changed(**settings)
    model = built(_convolutional, 1, "test")
    return build(scenario, method("fedavg"), model=model, federation=_images((5, 12, 20, 8)))


def _same_orders(experiment: Experiment) -> RoundBatches:
    """Headway's own cohorts and batches, as the loop takes them."""

    def orders(number: int) -> Iterator[tuple[int, list[torch.Tensor]]]:
        for client in experiment.client_rounds.cohort(number).clients:
            rows = experiment.federation.clients[client]
            batches = plan(experiment.scenario, rows, experiment.scenario.seed, number, client, 0)
            pairs = zip(batches.rows, batches.counts, strict=True)
            yield len(rows), [torch.from_numpy(batch[:count]) for batch, count in pairs]

    return orders


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_the_plain_loop_is_the_serial_executor(channels_last: bool, clip: float) -> None:
    """Same start, same batches, unequal clients: the same model after three rounds."""
    experiment = _experiment(clip=clip, rate_decay=1.0)
    loop = PlainLoop(experiment, Variant("fp32", channels_last), _same_orders(experiment))
    model, executor = initial_state(experiment), Serial(experiment)
    for number in (1, 2, 3):
        loop.play()
        with experiment.arithmetic():
            model, _ = run_round(
                experiment, model, ClientStates(), executor, experiment.client_rounds.cohort(number), number
            )
    assert float((model.theta - experiment.network.parameters).norm()) > 0.1
    for (name, leaf), mine in zip(model.theta.leaves.items(), loop.local.values, strict=True):
        torch.testing.assert_close(mine, leaf, rtol=0, atol=1e-10, msg=name)


def test_the_plain_loop_reads_every_sample_of_its_cohort_once_an_epoch() -> None:
    experiment = _experiment()
    loop = PlainLoop(experiment, Variant())
    for size, batches in loop.batches(1):
        rows = torch.cat(list(batches))
        owner = next(own for own in experiment.federation.clients if rows[0] in own)
        assert len(owner) == size
        assert sorted(rows.tolist()) == sorted([*owner.tolist()] * 2)


def test_the_plain_loop_tries_both_layouts_of_images() -> None:
    loop = PlainLoop(_experiment())
    assert loop.options["layout"] in ("contiguous", "channels-last")


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_what_it_says(name: str) -> None:
    workload = WORKLOADS[name]
    assert (workload.cohort, workload.steps, workload.batch) == WORK[name]
    assert sum(leaf.numel() for leaf in workload.module().parameters()) == PARAMETERS[name]
    assert workload.flops() > 4 * PARAMETERS[name] * workload.batch * workload.steps * workload.cohort


def test_every_round_has_exactly_its_full_batches() -> None:
    workload = WORKLOADS["lenet"]
    experiment = workload.experiment("cpu", "fp32")
    for client in experiment.client_rounds.cohort(1).clients:
        batches = plan(experiment.scenario, experiment.federation.clients[client], 0, 1, client, 0)
        assert batches.counts.tolist() == [workload.batch] * workload.steps
    assert len(experiment.client_rounds.cohort(1).clients) == workload.cohort
    assert torch.equal(workload.federation().train.y, experiment.federation.train.y)


def test_dropout_is_in_the_cnn_of_every_engine() -> None:
    workload = WORKLOADS["cnn"]
    federation = workload.federation()
    local = LocalSGD(workload.module(), federation, workload.scenario("cpu", "fp32"), torch.device("cpu"), Variant())
    rows = torch.arange(2)
    x = local.normalise(federation.train.x[rows])
    assert not torch.equal(local.module(x), local.module(x))


def test_flops_of_the_mlp() -> None:
    """2·(products of neighbouring widths) forward, twice that backward less the gradient of the images."""
    widths = (784, 200, 200, 200, 10)
    products = [left * right for left, right in itertools.pairwise(widths)]
    assert WORKLOADS["mlp"].flops() == 2 * (3 * sum(products) - products[0]) * 64 * 5 * 10


def _bench(*arguments: str) -> object:
    done = CliRunner().invoke(app, ["bench", "--device", "cpu", *arguments])
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.stdout


def test_json_has_what_is_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    engines = "serial,batched,pool,auto,pfl,flower"  # without those that compile, which take their time
    told = _bench("--workload", "mlp", "--engines", engines, "--rounds", "1", "--json", "--out", str(tmp_path))
    assert isinstance(told, str)
    result = json.loads(told)
    assert result["workload"] == "mlp"
    rows = {row["name"]: row for row in result["engines"]}
    assert list(rows) == ["loop", "serial", "batched", "pool", "auto"]
    for row in rows.values():
        assert row["seconds_per_round"] > 0
        assert row["ratio_to_loop"] == pytest.approx(rows["loop"]["seconds_per_round"] / row["seconds_per_round"])
        assert row["flops_per_second"] == pytest.approx(result["flops_per_round"] / row["seconds_per_round"])
        assert row["precision"] == "fp32"
    assert result["evaluation"] == "none in any engine"
    assert {"date", "hardware", "versions"} <= result["environment"].keys()
    missing = {entry["name"]: entry["reason"] for entry in result["skipped"]}
    assert "headway[bench]" in missing["pfl"]
    assert "headway[bench]" in missing["flower"]
    (file,) = tmp_path.iterdir()
    assert file.name.endswith("-mlp.json")
    assert json.loads(file.read_text()) == result
    assert table.write_result(result, tmp_path).name == f"{file.stem}-2.json"  # nothing is overwritten
    assert table.write_result(result, tmp_path).name == f"{file.stem}-3.json"


def test_executors_are_measured_in_every_precision() -> None:
    told = _bench("--workload", "mlp", "--engines", "serial", "--rounds", "1", "--json", "--precision", "fp32,bf16")
    assert isinstance(told, str)
    rows = [(row["name"], row["precision"]) for row in json.loads(told)["engines"]]
    assert rows == [("loop", "fp32"), ("serial", "fp32"), ("serial", "bf16")]


def test_an_engine_that_fails_in_one_precision_keeps_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = measure.choose

    def refusing(experiment: Experiment, asked: str, tell: measure.Tell) -> Executor:
        if experiment.scenario.precision == "bf16":
            raise CannotExecute("not in bf16")
        return choose(experiment, asked, tell)

    monkeypatch.setattr(measure, "choose", refusing)
    told = _bench(
        "--workload", "mlp", "--engines", "serial", "--rounds", "1", "--json", "--precision", "fp32,bf16,fp32"
    )
    assert isinstance(told, str)
    result = json.loads(told)
    assert [(row["name"], row["precision"]) for row in result["engines"]] == [("loop", "fp32"), ("serial", "fp32")]
    assert result["skipped"] == [{"name": "serial", "reason": "not in bf16", "precision": "bf16"}]


def test_the_table_names_the_extra_of_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    told = _bench("--workload", "mlp", "--rounds", "1", "--engines", "flower")
    assert isinstance(told, str)
    assert "Flower's simulation is not installed; pip install 'headway[bench]' brings it" in told
    assert "loop" in told


def test_engines_are_all_a_scenario_can_ask_for() -> None:
    assert measure.executors()[-1] == "auto"
    assert {"serial", "batched", "pool"} < set(measure.executors())
    assert measure.choose_engines(["auto", "auto"]) == ("loop", "auto")
    every = measure.choose_engines(None)
    assert every[0] == "loop"
    assert {"serial", "pool:compiled", "batched:compiled", "graphed", "auto", "pfl", "flower"} < set(every)
    assert not any(name.startswith("graphed:") for name in every)


def test_a_folder_that_cannot_be_made_is_reported_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "measure", lambda *given: pytest.fail("it was measured"))
    (tmp_path / "file").touch()
    fault = CliRunner().invoke(app, ["bench", "--workload", "mlp", "--out", str(tmp_path / "file")]).exception
    assert isinstance(fault, UserError)
    assert "cannot be made" in str(fault)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workload", "mlpp"], "did you mean 'mlp'"),
        (["--engines", "fower"], "did you mean 'flower'"),
        (["--precision", "fp8"], "allowed: fp32, tf32, bf16"),
        (["--device", "tpu"], "allowed: auto, cpu, cuda or cuda:N"),
    ],
)
def test_a_wrong_name_is_one_line(arguments: list[str], words: str) -> None:
    fault = CliRunner().invoke(app, ["bench", *arguments]).exception
    assert isinstance(fault, UserError)
    assert words in str(fault)


def test_workloads_by_name() -> None:
    assert [work.name for work in workloads(["cnn", "mlp"])] == ["cnn", "mlp"]


def test_a_peer_that_fails_says_its_last_line() -> None:
    """Whether or not a simulator is installed, its process ends with one line and no traceback."""
    order = peers.PeerJob("pfl", "no such workload", "cpu", Variant())
    with pytest.raises(peers.PeerFailed) as fault:
        peers.PeerEngine(order)
    assert "\n" not in str(fault.value)
    assert "no such workload" in str(fault.value) or "No module named 'pfl'" in str(fault.value)


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_while_a_peer_starts_ends_it(again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends by itself; or at once, where Ctrl-C comes again while it is waited for."""
    started: list[subprocess.Popen[str]] = []
    wait = subprocess.Popen.wait

    def interrupted(engine: peers.PeerEngine) -> None:
        started.append(engine.process)
        raise KeyboardInterrupt

    def impatient(process: subprocess.Popen[str], timeout: float | None = None) -> int:
        if again and timeout is not None:
            raise KeyboardInterrupt
        return wait(process, timeout)

    monkeypatch.setattr(peers.PeerEngine, "_ready", interrupted)
    monkeypatch.setattr(subprocess.Popen, "wait", impatient)
    with pytest.raises(KeyboardInterrupt):
        peers.PeerEngine(peers.PeerJob("pfl", "no such workload", "cpu", Variant()))
    (process,) = started
    assert process.returncode == (-signal.SIGKILL if again else 1)


def test_an_order_survives_the_way() -> None:
    order = peers.PeerJob("flower", "cnn", "cuda:1", Variant("tf32", True))
    assert peers.PeerJob.read(order.written()) == order


def test_the_tutorial_s_client_does_the_workload_s_steps() -> None:
    """The batches that a `DataLoader` with this seed would make, through the plain loop's step."""
    workload, client = WORKLOADS["mlp"], 3
    start = workload.module().state_dict()
    message = SimpleNamespace(content={"arrays": SimpleNamespace(to_torch_state_dict=lambda: start)})
    seeded = partial(isolated, (5, 0), torch.device("cpu"))
    with seeded():
        found, samples = peer_flower._tutorial_training(message, client, peers.PeerJob("", "mlp", "cpu", Variant()))
    federation = workload.federation()
    rows = torch.as_tensor(np.asarray(federation.clients[client]))
    assert samples == len(rows)
    with seeded():
        batches = list(DataLoader(rows, batch_size=workload.batch, shuffle=True))  # type: ignore[arg-type]
    assert len(batches) == workload.steps
    scenario = workload.scenario("cpu", "fp32")
    local = LocalSGD(workload.module(), federation, scenario, torch.device("cpu"), Variant())
    local.train(batches)
    one, two, before = map(parameters_to_vector, (found.parameters(), local.parameters, start.values()))
    assert (one - two).norm() < 1e-4 * (one - before).norm()


@pytest.mark.parametrize("name", peers.PEERS)
def test_a_peer_that_is_installed_plays(name: str) -> None:
    if peers.PEERS[name].missing:
        pytest.skip(f"{name} is not installed")
    engine = peers.PeerEngine(peers.PeerJob(name, "mlp", "cpu", Variant()))
    engine.play()
    engine.close()
    assert engine.process.returncode == 0


def test_a_file_is_named_after_date_hardware_and_workload() -> None:
    stamp = {"date": "2026-01-02T03:04:05+00:00", "hardware": "NVIDIA H200 (SXM)"}
    assert table.file_name({"workload": "cnn", "environment": stamp}) == "2026-01-02-nvidia-h200-sxm-cnn.json"


COHORTS = Path(__file__).resolve().parents[1] / "benchmarks" / "cohorts.py"


def test_only_clients_that_take_part_are_made() -> None:
    """A round of a million clients that are made when asked for looks at its cohort alone."""
    specification = importlib.util.spec_from_file_location("cohorts", COHORTS)
    assert specification is not None
    assert specification.loader is not None
    cohorts = importlib.util.module_from_spec(specification)
    sys.modules["cohorts"] = cohorts
    specification.loader.exec_module(cohorts)
    made: set[int] = set()

    class Watched(cohorts.Clients):  # type: ignore[name-defined,misc]
        def __getitem__(self, client: int) -> np.ndarray:
            made.add(client)
            rows: np.ndarray = super().__getitem__(client)
            return rows

    draw = np.random.default_rng(0)
    pool = Samples(torch.from_numpy(draw.random((cohorts.SAMPLES, 6))), torch.from_numpy(draw.integers(0, 3, 10_000)))
    federation = Federation(pool, Samples(pool.x[:9], pool.y[:9]), Watched(1_000_000), 3)
    scenario = Scenario(model="linear", cohort_size=5, epochs=1, device="cpu", rounds=2)
    experiment = build(scenario, method("fedavg"), federation=federation)
    model = initial_state(experiment)
    with experiment.arithmetic():
        run_round(experiment, model, ClientStates(), Serial(experiment), experiment.client_rounds.cohort(1), 1)
    assert made == set(experiment.client_rounds.cohort(1).clients)
    assert experiment.weight_total == 50e6


def test_the_cohort_sweep_runs_a_case_apart() -> None:
    case = {"population": 1000, "cohort": 4, "executor": "serial", "rounds": 1}
    command = [sys.executable, str(COHORTS), "--case", json.dumps(case)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert told["cohort"] == 4
    assert told["peak_memory_bytes"] > 1e7
