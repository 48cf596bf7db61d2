"""Clients on a CUDA device without the host in between: begin, step and finish are captured once and replayed.

Two layouts of the same work. `streams`: every client has its own memory, graphs and stream, and clients run side by
side. `stacked`: a group of clients is one program under `torch.func.vmap`. Both call the functions of `local.py`,
compiled by torch's compiler where that is asked for. Shapes are the largest of the run, so what is captured once
serves every round.
"""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from headway.engine import local
from headway.engine.executor import Assignment, CannotExecute, Trained, Work, Works, first_words
from headway.engine.local import Rules, Task
from headway.engine.network import Buffers
from headway.engine.shapes import grown
from headway.engine.traced import traced
from headway.errors import ClientError, UserError
from headway.trees import copied, leaves_like, leaves_of, row, stack, tree_map
from headway.vectors import Vector

AT_ONCE = {"streams": 10, "stacked": 128}
"""Clients that are trained at the same time; a larger cohort is trained in several groups."""
ALIGNMENT = 16
"""Bytes."""
APART = {"triton.persistent_reductions": False}
"""Of torch's compiler, for clients on streams: where channels lie together in memory, the sums over an image of a group
normalisation go faster in steps than at once."""
TOGETHER = {"combo_kernels": True}
"""Small kernels of a step are put together."""
WARMING = 2
"""Calls before a capture: compilation, choice of algorithms, workspaces."""
WHOLE = 16
"""Steps up to which a stack's whole round is one graph: small networks leave the device waiting for the host."""
WHOLES = 4
"""Numbers of steps for which such a graph is kept."""
EXAMS = 2
"""Shapes and types of samples for which an evaluation is captured: those of the test and of the training set."""


def _aligned(one: Tensor) -> int:
    """The elements from one such tensor to the next, so that each begins where the compiler wants it to."""
    per = ALIGNMENT // one.element_size()
    return max(-(-one.numel() // per), 1) * per


def _room(tree: Any, count: int | None = None) -> Any:
    """Memory like a tree's, or for `count` such trees; every leaf keeps its layout."""

    def like(leaf: Tensor) -> Tensor:
        one = torch.empty_like(leaf)
        if count is None:
            return one
        return one.new_empty_strided((count, *one.shape), (_aligned(one), *one.stride()))

    return tree_map(like, tree)


def _fill(held: Any, fresh: Any) -> None:
    into, out = leaves_of(held), leaves_of(fresh)
    assert len(into) == len(out)
    if into:
        torch._foreach_copy_(into, out)


def _kept_in(tree: Any) -> Any:
    room = _room(tree)
    _fill(room, tree)
    return room


Place = dict[str, Any]
"""Fixed memory of one client, or of a stack: received, buffers, kept, task, round, index, carry."""


class _Functions:
    """`local`'s three functions over a place, for one client or stacked."""

    def __init__(self, rules: Rules, layout: str, own_buffers: bool) -> None:
        def begin(received: Any, buffers: Any, kept: Any, task: Task) -> Any:
            return local.begin(rules, received, buffers, kept, task)

        def advance(carry: Any, received: Any, task: Task, index: Tensor, round: Tensor) -> Any:
            return local.advance(rules, carry, received, task, index, round)

        def finish(carry: Any, received: Any, kept: Any, task: Task) -> Any:
            return local.finish(rules, carry, received, kept, task)

        self._begin, self._advance, self._finish = begin, advance, finish
        if layout == "stacked":
            self._begin = vmap(begin, in_dims=(None, 0 if own_buffers else None, 0, 0))
            self._advance = vmap(advance, in_dims=(0, None, 0, None, None))
            self._finish = vmap(finish, in_dims=(0, None, 0, 0))

    def begun(self, place: Place) -> Any:
        return self._begin(place["received"], place["buffers"], place["kept"], place["task"])

    def finished(self, place: Place) -> Any:
        return self._finish(place["carry"], place["received"], place["kept"], place["task"])

    def begin(self, place: Place) -> None:
        _write(place["carry"], self.begun(place))
        place["index"].zero_()

    def advance(self, place: Place) -> None:
        carry = place["carry"]
        _write(carry, self._advance(carry, place["received"], place["task"], place["index"], place["round"]))
        place["index"].add_(1)

    def finish(self, place: Place, result: Any) -> None:
        _write(result, self.finished(place))


def _write(held: Any, fresh: Any) -> None:
    """One tree into the memory of another, in a traced program; what is read of it is read before it is written.

    A slot may return a view of what it was given.
    """
    old, new = leaves_of(held), leaves_like(fresh, held)
    own = {_memory(leaf) for leaf in old}
    for into, leaf in zip(old, [leaf.clone() if _memory(leaf) in own else leaf for leaf in new], strict=True):
        into.copy_(leaf)


def _memory(leaf: Tensor) -> int:
    return leaf.untyped_storage()._cdata  # type: ignore[no-any-return]


def _summarise(trained: Any, weights: Tensor, result: Any) -> None:
    """A seat without a client has weight 0. Its buffers may be infinite, as a mask is, and 0 · ∞ is no number."""

    def seated(buffer: Tensor) -> Tensor:
        return torch.where((weights > 0).reshape(-1, *[1] * (buffer.dim() - 1)), buffer, torch.zeros_like(buffer))

    _write(result, local.summary({**trained, "buffers": tree_map(seated, trained["buffers"])}, weights))


def _check_device(device: torch.device) -> None:
    if device.type != "cuda":
        raise CannotExecute("graphs are captured on a CUDA device only")


def _stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def _captured(
    function: Callable[[], Any],
    stream: torch.cuda.Stream,
    before: Callable[[], Any] = lambda: None,
    warming: int = WARMING,
) -> torch.cuda.CUDAGraph:
    """The function's work as a graph; `before` goes ahead of each call that warms up."""
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warming):
            before()
            function()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        function()
    return graph


class _Seat:
    """A place with its stream and the graphs that work on it."""

    def __init__(self, programs: Sequence[Any], place: Place, result: Any) -> None:
        self.place, self.result, self.stream = place, result, _stream()
        self.programs = begin, advance, finish = programs
        self._begin = _captured(lambda: begin(place), self.stream)
        self._advance = _captured(lambda: advance(place), self.stream, before=place["index"].zero_)
        self._finish = _captured(lambda: finish(place, result), self.stream)

    def load(self, kept: Any) -> None:
        _fill(self.place["kept"], kept["slots"])
        if "buffers" in kept:
            _fill(self.place["buffers"], kept["buffers"])

    def begin(self) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self._begin.replay()

    def advance(self) -> None:
        with torch.cuda.stream(self.stream):
            self._advance.replay()

    def finish(self) -> None:
        with torch.cuda.stream(self.stream):
            self._finish.replay()

    def whole(self, steps: int, then: Callable[[], Any]) -> torch.cuda.CUDAGraph:
        """All of it, and what comes after, as one graph."""
        begin, advance, finish = self.programs

        def all_of_it() -> None:
            begin(self.place)
            for _ in range(steps):
                advance(self.place)
            finish(self.place, self.result)
            then()

        return _captured(all_of_it, self.stream, warming=0)


class _Packed:
    """Every seat's task, the weights and the round, which travel to the device in one copy.

    It is made on the host in memory that the device can read by itself: in one of two places, so that the next one can
    be made while the last one still travels.
    """

    def __init__(self, example: Task, shapes: Mapping[str, tuple[int, ...]], seats: int, device: torch.device) -> None:
        names = [field.name for field in dataclasses.fields(Task)]
        ones = {
            name: torch.from_numpy(
                np.zeros(shapes.get(name, getattr(example, name).shape), getattr(example, name).dtype)
            )
            for name in names
        }
        ones["weights"] = torch.zeros((), dtype=torch.float64)
        ones["round"] = torch.zeros((), dtype=torch.int64)
        sizes = {name: seats * _aligned(one) * one.element_size() for name, one in ones.items()}
        *starts, total = itertools.accumulate(sizes.values(), initial=0)

        def parts(memory: Tensor) -> dict[str, Tensor]:
            found = {}
            for (name, one), start in zip(ones.items(), starts, strict=True):
                part = memory[start : start + sizes[name]].view(one.dtype)
                form = (seats, *one.shape), (_aligned(one), *one.stride())
                found[name] = part.as_strided(*form, part.storage_offset())
            return found

        self._hosts = [torch.zeros(total, dtype=torch.uint8).pin_memory() for _ in range(2)]
        self._arrays = [{name: part.numpy() for name, part in parts(host).items()} for host in self._hosts]
        self._arrived = [torch.cuda.Event() for _ in self._hosts]  # type: ignore[no-untyped-call]
        self._device = torch.zeros(total, dtype=torch.uint8, device=device)
        self._turn = 0
        self._expected: Works | None = None
        tensors = parts(self._device)
        self.weights, self.round = tensors["weights"], tensors["round"][0]
        self.tasks = Task(**{name: tensors[name] for name in names})

    def load(self, round: int, works: Works, positions: Sequence[int]) -> None:
        if works is not self._expected:
            chosen = works.at(positions)
            tasks = [vars(work.task) for work in chosen]
            self._write({name: [task[name] for task in tasks] for name in tasks[0]}, [work.weight for work in chosen])
        self._expected = None
        self._turn = 1 - self._turn
        self._arrays[self._turn]["round"][:] = round
        self._device.copy_(self._hosts[self._turn], non_blocking=True)
        self._arrived[self._turn].record()

    def expect(self, works: Works, tasks: Task, weights: np.ndarray) -> None:
        """Take in what the next load will bring."""
        self._write(vars(tasks), weights)
        self._expected = works

    def _write(self, tasks: Mapping[str, np.ndarray | list[np.ndarray]], weights: np.ndarray | list[float]) -> None:
        """Tasks on the host, field by field, stacked or one by one. Seats without a client repeat the first, at 0."""
        turn, count = 1 - self._turn, len(weights)
        self._arrived[turn].synchronize()
        arrays = self._arrays[turn]
        arrays["weights"][:count], arrays["weights"][count:] = weights, 0
        for name, parts in tasks.items():
            whole = arrays[name]
            shape = whole.shape[1:]
            if not isinstance(parts, np.ndarray):
                parts = [part if part.shape == shape else grown(part, shape) for part in parts]
            whole[:count] = parts
            whole[count:] = whole[0]


class _Hall:
    """The seats of clients that train at the same time, and what they share: the broadcast."""

    def __init__(self, rules: Rules, layout: str, compiled: bool, assignment: Assignment) -> None:
        self.stacked = layout == "stacked"
        self.device = rules.pool.y.device
        self.size = min(AT_ONCE[layout], len(assignment.works))
        self.received, self.buffers = _kept_in(dict(assignment.received)), _kept_in(assignment.buffers)
        works = assignment.works.at(range(self.size))
        self.keeps = bool(leaves_of(works[0].kept))
        self.packed = _Packed(works[0].task, assignment.shapes, self.size, self.device)
        self.packed.load(assignment.round, assignment.works, range(self.size))
        functions = _Functions(rules, layout, "buffers" in works[0].kept)
        places = [self._place(functions, number, kept) for number, kept in enumerate(self._kept(works))]
        self.result = _room(functions.finished(places[0]), None if self.stacked else self.size)
        results = [self.result] if self.stacked else [row(self.result, number) for number in range(self.size)]
        options = TOGETHER if self.stacked else {**TOGETHER, **APART}
        how: dict[str, Any] = {"compiled": compiled, "options": options}
        programs = (
            traced(functions.begin, (places[0],), **how),
            traced(functions.advance, (places[0],), **how),
            traced(functions.finish, (places[0], results[0]), **how),
        )
        self.seats = [_Seat(programs, place, into) for place, into in zip(places, results, strict=True)]
        given = (self.result, self.packed.weights)
        self.summary = _room(local.summary(*given))
        summarise = traced(_summarise, (*given, self.summary), **how)
        self._sum_up = lambda: summarise(*given, self.summary)
        self._summarise = _captured(self._sum_up, _stream())
        self._wholes: dict[int, torch.cuda.CUDAGraph] = {}

    def _kept(self, works: Sequence[Work]) -> list[Any]:
        """What is kept, for each seat."""
        kept = [work.kept for work in works]
        if not self.stacked:
            return kept
        return [stack(kept + [kept[0]] * (self.size - len(kept))) if leaves_of(kept[0]) else kept[0]]

    def _place(self, functions: _Functions, number: int, kept: Any) -> Place:
        place = {
            "received": self.received,
            "buffers": _kept_in(kept["buffers"]) if "buffers" in kept else self.buffers,
            "kept": _kept_in(kept["slots"]),
            "task": self.packed.tasks if self.stacked else row(self.packed.tasks, number),
            "round": self.packed.round,
            "index": torch.zeros((), dtype=torch.int64, device=self.device),
        }
        return {**place, "carry": _kept_in(functions.begun(place))}

    def train(self, assignment: Assignment, positions: Sequence[int]) -> dict[str, Any]:
        _fill(self.received, dict(assignment.received))
        _fill(self.buffers, assignment.buffers)
        self.packed.load(assignment.round, assignment.works, positions)
        steps = [assignment.works.lengths[position] for position in positions]
        longest = max(steps)
        steps = [longest] if self.stacked else steps
        seats = self.seats[: len(steps)]
        if self.keeps:
            for seat, kept in zip(seats, self._kept(assignment.works.at(positions)), strict=True):
                seat.load(kept)
        whole = self._whole(longest)
        if whole is None:
            self._play(seats, steps)
            self._summarise.replay()
        else:
            whole.replay()
        told = self.summary["told"][: len(positions)]
        return {**self.result, "summary": {**self.summary, "told": told}, "computed": self._computed(steps)}

    def _play(self, seats: Sequence[_Seat], steps: Sequence[int]) -> None:
        """So many steps in each seat, launched in turns: else the last seat waits for the launches of all others."""
        for seat in seats:
            seat.begin()
        for step in range(max(steps)):
            for seat, count in zip(seats, steps, strict=True):
                if step < count:
                    seat.advance()
        for seat in seats:
            seat.finish()
            torch.cuda.current_stream().wait_stream(seat.stream)

    def _computed(self, steps: Sequence[int]) -> int:
        """Samples of so many steps in each seat, in use or not."""
        batch = int(self.packed.tasks.rows.shape[-1])
        return batch * sum(steps) * (self.size if self.stacked else 1)

    def _whole(self, steps: int) -> torch.cuda.CUDAGraph | None:
        """The graph of a stack's whole round of so many steps, where one is kept."""
        if self.stacked and steps <= WHOLE and steps not in self._wholes and len(self._wholes) < WHOLES:
            self._wholes[steps] = self.seats[0].whole(steps, self._sum_up)
        return self._wholes.get(steps)


class _Exam:
    """A captured pass in evaluation mode over so many samples."""

    def __init__(self, rules: Rules, layout: str, compiled: bool, given: tuple[Any, ...]) -> None:
        self.place = _kept_in(given)
        options = APART if layout == "streams" else {}
        function = traced(lambda *place: local.score(rules, *place), self.place, compiled=compiled, options=options)
        self.result = _room(function(*self.place))
        self.graph = _captured(lambda: _fill(self.result, function(*self.place)), _stream())

    def sit(self, given: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        _fill(self.place, given)
        self.graph.replay()
        return copied(self.result)  # type: ignore[no-any-return]


def _by_length(works: Works) -> list[int]:
    return sorted(range(len(works)), key=works.lengths.__getitem__)


class Graphed:
    def __init__(self, rules: Rules, *, layout: str, compiled: bool = False) -> None:
        _check_device(rules.pool.y.device)
        if rules.coupled:
            raise CannotExecute("its batches are filled to one shape, and filler rows change what this model computes")
        self.rules = dataclasses.replace(rules, functional=True, masked=layout == "stacked")
        self.name = f"graphed:{layout}{':compiled' if compiled else ''}"
        self.layout, self.compiled = layout, compiled
        self._hall: _Hall | None = None
        self._exams: dict[Any, _Exam] = {}
        self._no_exam = False

    def run(self, assignment: Assignment) -> Iterator[Trained]:
        """Clients of like length train together, so that few wait for others.

        Every group is written into the same memory: what is wanted of one is read before the next.
        """
        order = _by_length(assignment.works)
        hall = self._hall = self._hall or self._opened(assignment)
        for start in range(0, len(order), hall.size):
            positions = tuple(order[start : start + hall.size])
            try:
                trained = hall.train(assignment, positions)
            except RuntimeError as fault:
                clients = [work.client for work in assignment.works.at(positions)]
                raise ClientError.of(fault, round=assignment.round, clients=clients) from fault
            yield positions, trained

    @property
    def room(self) -> int:
        """One group."""
        return 0 if self._hall is None else self._hall.size

    def expect(self, works: Works, tasks: Task, weights: np.ndarray) -> None:
        assert self._hall is not None
        order = _by_length(works)
        if order != list(range(len(order))):
            tasks, weights = Task(**{name: array[order] for name, array in vars(tasks).items()}), weights[order]
        self._hall.packed.expect(works, tasks, weights)

    def _opened(self, assignment: Assignment) -> _Hall:
        try:
            return _Hall(self.rules, self.layout, self.compiled, assignment)
        except CannotExecute:
            raise
        except UserError as mistake:
            raise mistake.at(f"round {assignment.round}") from mistake
        except Exception as fault:
            raise CannotExecute(f"{type(fault).__name__}: {first_words(fault)}") from fault

    def score(self, w: Vector, buffers: Buffers, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`local.score`, replayed; samples of a shape or type for which it was not captured are scored without it."""
        given, form = (w, buffers, x, y), (x.shape, x.dtype, y.shape, y.dtype)
        if form not in self._exams and len(self._exams) < EXAMS and not self._no_exam:
            try:
                self._exams[form] = _Exam(self.rules, self.layout, self.compiled, given)
            except Exception as fault:  # a pass that cannot be captured is made without
                self._no_exam = True
                warnings.warn(f"the evaluation is not captured ({first_words(fault)})", stacklevel=2)
        exam = self._exams.get(form)
        return local.score(self.rules, *given) if exam is None else exam.sit(given)

    def close(self) -> None:
        self._hall = None
        self._exams.clear()
