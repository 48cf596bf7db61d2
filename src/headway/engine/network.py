"""`Network`: a user's module as a pure function of (parameters, buffers, inputs, key)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from headway import random
from headway.data.columns import Tensors
from headway.errors import UserError
from headway.methods.slots import Output
from headway.models.drawing import KeyedDraws
from headway.models.pretrained import without_branches
from headway.models.staged import branch_points
from headway.models.twins import INJECTED, KeyedDropout, WeightedBatchNorm, twinned
from headway.tasks.metrics import Answer
from headway.trees import leaves_of
from headway.vectors import Vector

Buffers = dict[str, Tensor]


class _Stages(nn.Module):
    """A module run stage by stage, from any stage on, with the output of every one."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, start: int) -> list[Tensor]:
        outputs: list[Tensor] = []
        for stage in list(self.module.stages)[start:]:  # type: ignore[arg-type]
            x = stage(x)
            outputs.append(x)
        return outputs


Kind = TypeVar("Kind", bound=nn.Module)


def _modules(module: nn.Module, kind: type[Kind]) -> dict[str, Kind]:
    """The modules of a kind inside a module, by name."""
    return {name: child for name, child in module.named_modules() if isinstance(child, kind)}


def _prefix(name: str) -> str:
    """What stands before the names of a module's own tensors."""
    return f"{name}." if name else ""


def _has_ties(module: nn.Module) -> bool:
    """Whether some tensor stands in two places of a module."""

    def count(once: bool) -> int:
        named = chain(module.named_parameters(remove_duplicate=once), module.named_buffers(remove_duplicate=once))
        return sum(1 for _ in named)

    return count(once=False) > count(once=True)


def _parameters(module: nn.Module) -> tuple[Vector, dict[str, Tensor]]:
    """Copies of what a module learns; and what its user froze, which may be large, as it is."""
    named = dict(module.named_parameters())
    learnt = {name: leaf.detach().clone() for name, leaf in named.items() if leaf.requires_grad}
    frozen = {name: leaf.detach() for name, leaf in named.items() if not leaf.requires_grad}
    if not learnt:
        raise UserError("the model has no parameter that can be trained")
    return Vector(learnt), frozen


def _buffers(module: nn.Module, training: nn.Module) -> tuple[Buffers, Buffers]:
    """Copies of a module's buffers: those that a pass may change, and its constants. None that a pass is given.

    Constants are those that its state dict leaves out, such as the numbers of places, and the statistics of BatchNorm
    layers that the module's own `train` leaves in evaluation mode (`training` is the module after it).
    """
    copies = {name: leaf.detach().clone() for name, leaf in module.named_buffers() if _own_name(name) not in INJECTED}
    kept, measuring = module.state_dict().keys(), _measuring(training)
    still = tuple(_prefix(name) for name in _modules(module, WeightedBatchNorm) if name not in measuring)
    constants = {name for name in copies if name not in kept or (still and name.startswith(still))}
    return (
        {name: leaf for name, leaf in copies.items() if name not in constants},
        {name: leaf for name, leaf in copies.items() if name in constants},
    )


def _measuring(training: nn.Module) -> list[str]:
    """The BatchNorm layers that measure statistics in training; those frozen by the module's own `train` do not."""
    return [name for name, norm in _modules(training, WeightedBatchNorm).items() if norm.training]


def _own_name(path: str) -> str:
    """A tensor's name in the module that holds it."""
    return path.rsplit(".", 1)[-1]


def _stages_of(module: nn.Module) -> list[nn.Module]:
    """A module's stages, for methods that look inside; one that names none is refused."""
    if not hasattr(module, "stages"):
        raise UserError(
            "this method looks inside the model: give it an attribute `stages`, an iterable of submodules whose "
            "composition is the model and whose last member is the classifier"
        )
    return list(module.stages)  # type: ignore[arg-type]


def _matrices(layer: nn.Module) -> list[nn.Parameter]:
    return [leaf for leaf in layer.parameters(recurse=False) if leaf.dim() > 1]


def roles_of(module: nn.Module) -> dict[str, str]:
    """What each parameter that is learnt is: `embedding`, `matrix`, `head` or `vector`.

    Matrices have two or more axes. The head is the last module that has one, in the order in which modules were added.
    """
    embeddings = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Embedding | nn.EmbeddingBag)}
    owners = map(_matrices, module.modules())
    head = {id(leaf) for leaf in next((found for found in reversed(list(owners)) if found), [])}

    def role(leaf: Tensor) -> str:
        if leaf.dim() < 2:
            return "vector"
        return "embedding" if id(leaf) in embeddings else "head" if id(leaf) in head else "matrix"

    return {name: role(leaf) for name, leaf in module.named_parameters() if leaf.requires_grad}


class _Skeleton:
    """A copy of a module that is called with numbers from outside, and the places in it that are given more.

    Its own numbers are those of the original, since none is read.
    """

    def __init__(self, twin: nn.Module, *, training: bool, staged: bool) -> None:
        inner = self.inner = copy.deepcopy(twin, {id(one): one for one in chain(twin.parameters(), twin.buffers())})
        self.module = (_Stages(inner) if staged else inner).train(training)
        self.dropouts = [
            (number, _prefix(name), child)
            for number, (name, child) in enumerate(inner.named_modules())
            if isinstance(child, KeyedDropout)
        ]
        self.norms = [_prefix(name) for name in _modules(inner, WeightedBatchNorm)]
        self.tied = _has_ties(inner)
        self.written = {name for name, _ in inner.named_buffers() if not name.startswith(tuple(self.norms) or "?")}
        """Buffers that a module of the user's may change in their place; the twins of BatchNorm assign new ones."""

    def to(self, device: torch.device, dtype: torch.dtype) -> None:
        self.module.to(device, dtype)


class Network:
    """The module's computation, apart from its numbers.

    `parameters` (what is learnt and sent) form a `Vector`; `buffers` (BatchNorm statistics) are inputs and outputs of a
    training pass; what a user froze (`requires_grad=False`) is a constant, as are buffers that nothing changes.
    """

    def __init__(self, module: nn.Module, policy: str = "average", needs: frozenset[str] = frozenset()) -> None:
        self.original = module
        self.needs_stages = "stages" in needs
        self.branches = branch_points(_stages_of(module)) if self.needs_stages else ()
        twin = twinned(module)
        without_branches(twin)
        self.parameters, self.frozen = _parameters(twin)
        self.draws = bool(_modules(twin, KeyedDropout))
        """Whether a pass in training mode draws random numbers."""
        self._drops = False
        """Whether the module's own code calls functions that can drop something."""
        self._training = _Skeleton(twin, training=True, staged=self.needs_stages)
        self._evaluating = _Skeleton(twin, training=False, staged=self.needs_stages)
        self.buffers, self.constants = _buffers(twin, self._training.inner)
        """What a pass may change, and the buffers that stay as they are and are not sent."""
        norms = _measuring(self._training.inner)
        if norms and policy == "refuse":
            raise UserError(
                f"the model keeps batch statistics in '{norms[0]}' and buffers is 'refuse'; use --buffers average or "
                "keep-local, or a model with GroupNorm"
            )
        self.joint = policy == "keep-local" and bool(norms)
        """Whether the statistics of a pass in evaluation mode are those of its samples: clients keep all others."""
        everywhere = _modules(self._evaluating.inner, WeightedBatchNorm)
        self._measured = [everywhere[name] for name in norms]
        for norm in self._measured:
            norm.stays_local = self.joint

    def to(self, device: torch.device, dtype: torch.dtype) -> Network:
        """This network with its first numbers on a device, floating-point ones in a type.

        On a GPU the weights of convolutions lie with their channels together, as its fastest kernels want them.
        """

        def cast(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                return tensor.to(device)
            images = device.type == "cuda" and tensor.dim() == 4
            return tensor.to(device, dtype, memory_format=torch.channels_last if images else torch.preserve_format)

        self._training.to(device, dtype)
        self._evaluating.to(device, dtype)
        return self._with(cast)

    def cast(self, dtype: torch.dtype) -> Network:
        """This network with its first numbers in another type, beside this one."""
        return self._with(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)

    def _with(self, change: Callable[[Tensor], Tensor]) -> Network:
        changed = copy.copy(self)
        changed.parameters = self.parameters.map(change)
        changed.frozen = {name: change(leaf) for name, leaf in self.frozen.items()}
        changed.buffers = {name: change(leaf) for name, leaf in self.buffers.items()}
        changed.constants = {name: change(leaf) for name, leaf in self.constants.items()}
        return changed

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around a pass in evaluation mode, in which dropout that the module calls as a function is noticed."""
        with KeyedDraws() as watch:
            yield
        self._drops = watch.found
        self.draws = self.draws or watch.found

    def _keyed(self, key: Tensor) -> AbstractContextManager[object]:
        """Around a training pass: what the module's own code drops follows from the key."""
        return KeyedDraws(random.fold(key, -1)) if self._drops else nullcontext()

    def train(self, w: Vector, buffers: Buffers, x: Tensors, weight: Tensor, key: Tensor) -> tuple[Output, Buffers]:
        """A training pass and the buffers after it; rows of weight 0 have no effect on statistics."""
        skeleton, tensors = self._training, self._tensors(self._training, w, buffers, weight, key)
        with self._keyed(key):
            answer = functional_call(skeleton.module, tensors, *self._inputs(x), tie_weights=skeleton.tied)
        after = {name: tensors[self._prefix + name] for name in buffers}
        self._check_constants(tensors)
        return self._output(answer), after

    def evaluate(self, w: Vector, buffers: Buffers, x: Tensors) -> Answer:
        """Logits of a pass in evaluation mode."""
        leaf = leaves_of(x)[0]
        weight = torch.ones(len(leaf), device=leaf.device, dtype=next(iter(w.leaves.values())).dtype)
        key = torch.zeros(2, dtype=torch.int64, device=leaf.device)
        skeleton, tensors = self._evaluating, self._tensors(self._evaluating, w, buffers, weight, key)
        return self._output(
            functional_call(skeleton.module, tensors, *self._inputs(x), tie_weights=skeleton.tied)
        ).logits

    @contextmanager
    def own_statistics(self) -> Iterator[None]:
        """Inside, a pass in evaluation mode normalises with the buffers that it is given, those of one client."""
        for norm in self._measured:
            norm.stays_local = False
        try:
            yield
        finally:
            for norm in self._measured:
                norm.stays_local = self.joint

    def resume(self, w: Vector, buffers: Buffers, stage: int, hidden: Tensor, weight: Tensor, key: Tensor) -> Tensor:
        """Logits from the output of a stage, in training mode, buffers unchanged."""
        skeleton, tensors = self._training, self._tensors(self._training, w, buffers, weight, key)
        with self._keyed(key):
            answer = functional_call(skeleton.module, tensors, (hidden, stage + 1), tie_weights=skeleton.tied)
        return self._output(answer).logits

    @property
    def _prefix(self) -> str:
        """Before each name of a tensor in the module that is called."""
        return "module." if self.needs_stages else ""

    def _inputs(self, x: Tensors) -> tuple[tuple[object, ...], dict[str, Tensor]]:
        """The arguments that the module is called with: the samples, and where they begin if it is run by stages.

        A sample that is a tuple is given as arguments in order, one that is a dictionary as keyword arguments.
        """
        first = (0,) if self.needs_stages else ()
        if isinstance(x, Mapping):
            return first, dict(x)
        return (*x, *first) if isinstance(x, tuple) else (x, *first), {}

    def _tensors(self, skeleton: _Skeleton, w: Vector, buffers: Buffers, weight: Tensor, key: Tensor) -> Buffers:
        """All numbers that a pass reads, by name; it assigns new buffers there."""
        own = {name: buffer.clone() if name in skeleton.written else buffer for name, buffer in buffers.items()}
        tensors: Buffers = {**self.frozen, **self.constants, **w.leaves, **own}
        for number, place, child in skeleton.dropouts:
            child.calls = 0
            tensors[place + "headway_key"] = random.fold(key, number)
        for place in skeleton.norms:
            tensors[place + "headway_weight"] = weight
        return {self._prefix + name: tensor for name, tensor in tensors.items()} if self._prefix else tensors

    def _check_constants(self, tensors: Buffers) -> None:
        """Refuse a module that changes a buffer which is not kept."""
        for name, constant in self.constants.items():
            if tensors[self._prefix + name] is not constant or constant._version:
                raise UserError(
                    f"the model changes its buffer '{name}' in training, which its state dict leaves out, so that it "
                    "would be lost; register it with persistent=True"
                )

    def _output(self, answer: Any) -> Output:
        """A pass's answer: logits, and the outputs of stages where these are asked for.

        A dictionary with `logits`, as the models of Hugging Face give it, stands for these.
        """
        if self.needs_stages:
            return Output(answer[-1], tuple(answer[:-1]), self.branches)
        if isinstance(answer, Mapping):
            named = {name: part for name, part in answer.items() if isinstance(part, Tensor)}
            answer = named.get("logits", named)
        return Output(answer)

    def module(self, w: Vector, buffers: Buffers) -> nn.Module:
        """The user's module with these numbers in it, in their own type: float64 of a run in float64, else float32.

        Where clients keep their statistics, the server has none: its layers then use those of the samples at hand.
        """
        filled = copy.deepcopy(self.original).to(next(iter(w.leaves.values())).dtype)
        state = {name: tensor.detach().cpu() for name, tensor in {**self.frozen, **w.leaves, **buffers}.items()}
        filled.load_state_dict({**filled.state_dict(), **{k: v for k, v in state.items() if k in filled.state_dict()}})
        local = _measuring(self._training.inner) if self.joint else []
        for name, child in filled.named_modules():
            if isinstance(child, _BatchNorm) and name in local:
                child.track_running_stats = False
                child.running_mean = child.running_var = child.num_batches_tracked = None
        return filled
