"""What a method costs, computed from the messages it really sends, the state it really keeps and the work it does.

One client plays one real round of a small network; nothing is typed in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from headway import random
from headway.engine import server
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.engine.serial import ClientTrainer
from headway.engine.trial import first_rounds, round_input
from headway.methods.local.optimiser import Optimiser
from headway.methods.method import Method
from headway.methods.slots import State, Step
from headway.models.networks import Staged
from headway.scenario import Scenario
from headway.trees import nbytes
from headway.vectors import Vector

CLIENTS, WIDTH = 100, 64
_SCENARIO = Scenario(steps=2, batch_size=4, participation=0.01, device="cpu", executor="serial")


@dataclass(frozen=True)
class Cost:
    """Traffic, state and memory in multiples of the model; passes in FedAvg's forward and backward passes."""

    down: float
    up: float
    client_state: float
    server_memory: float
    passes: float


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations of matrix products and convolutions, by the formulas of torch's `FlopCounterMode`.

    Torch's own mode imports torch's compiler at its first operation, which takes longer than a short run.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self.paused = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: the compiler would be imported only to find that it has nothing to do here."""
        return False

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        named = dict(kwargs or {})
        with self:
            parts = func.decompose(*args, **named)
        if parts is not NotImplemented:
            return parts
        result = func(*args, **named)
        formula: Callable[..., int] | None = flop_registry.get(func._overloadpacket)
        if formula is not None and not self.paused:
            self.total += formula(*args, **named, out_val=result)
        return result


class _Uncounted:
    """An optimiser whose own products of matrices, such as Muon's, are not passes through the network."""

    def __init__(self, optimiser: Optimiser, counter: OperationCounter) -> None:
        self._optimiser, self._counter = optimiser, counter

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        self._counter.paused = True
        found = self._optimiser.direction(w, gradient, memory, step)
        self._counter.paused = False
        return found


def _only_passes(experiment: Experiment, counter: OperationCounter) -> Experiment:
    """The experiment, with nothing counted in its optimiser."""
    method = dataclasses.replace(experiment.method)
    steps = tuple(
        (name, _Uncounted(part, counter) if isinstance(part, Optimiser) else part) for name, part in method.chain.steps
    )
    vars(method)["chain"] = dataclasses.replace(method.chain, steps=steps)
    return dataclasses.replace(experiment, method=method)


def _small() -> nn.Module:
    """Three stages of 64 × 64."""
    stages = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(3)]
    return random.built(lambda: Staged(*stages, nn.Linear(WIDTH, 2)), 0, "cost")


def _experiment(
    method: Method,
    precision: str = "fp32",
    module: nn.Module | None = None,
    shape: tuple[int, ...] = (WIDTH,),
    epochs: int = 1,
) -> Experiment:
    """100 clients of 8 samples, so two steps of four are one epoch."""
    module = module or _small()
    x = random.uniform(torch.tensor(random.key(0, "cost")), (8, *shape))
    clients = [(x, torch.tensor([0, 1] * 4)) for _ in range(CLIENTS)]
    scenario = _SCENARIO.changed(precision=precision, steps=2 * epochs, weights="uniform")
    return build(scenario, method, model=module, clients=clients, test=clients[0])


def _counted(experiment: Experiment) -> tuple[float, int, int]:
    """Operations of one client's epoch, and its bytes down and up."""
    with experiment.arithmetic():
        sent = server.broadcast(experiment, server.initial_state(experiment), 1)
        given, client = round_input(experiment), first_rounds(experiment, [0])[0]
        counter = OperationCounter()
        trainer = ClientTrainer(_only_passes(experiment, counter), compiled=False)
        with counter:
            trained = trainer.decoded(given, client, *trainer.upload(given, client))
    if experiment.method.pooled:
        return counter.total, 0, 0
    return counter.total, sent.nbytes, int(trained["bytes"])


def passes(method: Method, module: nn.Module, shape: tuple[int, ...], epochs: int = 1) -> float:
    """A method's work in a round of this many epochs, with a network and samples of a shape, in FedAvg's passes.

    Counted in float64, in which no slot's own matrix products take part (GradMA's are in float32).
    """
    own, plain = (_counted(_experiment(one, "fp64", module, shape, epochs))[0] for one in (method, Method()))
    return own / plain


def cost(method: Method) -> Cost:
    """The price of a method, per client and round; with networks of several parts, passes depend on these."""
    experiment = _experiment(method)
    size = nbytes(experiment.network.parameters)
    _, down, up = _counted(experiment)
    return Cost(
        down=down / size,
        up=up / size,
        client_state=nbytes(experiment.method.client_state(experiment.network.parameters)) / size,
        server_memory=1 + nbytes(experiment.method.server_state(experiment.network.parameters, CLIENTS)) / size,
        passes=passes(method, _small(), (WIDTH,)),
    )
