"""The processes that torchrun has started, as ranks: torch.distributed does the talking.

On a CPU, and where several ranks share a GPU, everything goes through the host (gloo); where each rank has a GPU of its
own, tensors on it go through NCCL.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from headway.engine.ranks import ALONE, Ranks, Told, as_told, raised_by
from headway.errors import RankSilent, RanksLost, UserError, is_shared, shared

SILENCE = 1800.0
"""Seconds that a rank waits for the others, if nothing else is asked for."""
_HEAD, _LENGTH = 4096, 8
"""Bytes of the first exchange of `tell`, and of the length that it begins with; longer content takes a second one."""
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_CONNECTING, _ATTEMPTS = timedelta(seconds=60), 5
"""How long ranks that are all there may take to connect, and how often they try."""
_LAST_WORDS = 20.0
"""Seconds that other ranks give the one that has something to say to end before them."""


def started_with() -> int:
    """How many processes the launcher has started, by its environment; 1 where there is none."""
    count = os.environ.get("WORLD_SIZE", "1")
    if not count.isdecimal() or not int(count):
        raise UserError(f"WORLD_SIZE is '{count}' in the environment; torchrun sets it to the number of processes")
    return int(count)


def joined(wanted: int | None = None, silence: float | None = None) -> Ranks:
    """The ranks of this process: those that its launcher started, or this one alone.

    `wanted` is how many there must be; `silence` is after how many seconds a rank that does not answer is given up.
    """
    if silence is not None and not 0 < silence < 1e6:
        raise UserError(f"rank_timeout is {silence:g}; it must be a number of seconds above 0 and below a million")
    if wanted is not None and wanted < 1:
        raise UserError(f"ranks is {wanted}; it must be at least 1")
    if wanted == 1:
        return ALONE
    _check_started(started_with(), wanted)
    if started_with() == 1:
        return ALONE
    if not dist.is_available():
        raise UserError("this torch is built without torch.distributed, which several ranks need")
    return _connected(timedelta(seconds=silence or SILENCE))


def _check_started(count: int, wanted: int | None) -> None:
    """Refuse a number of ranks that is not what the launcher has started, and an environment that is not whole."""
    missing = [name for name in _NEEDED if name not in os.environ]
    if wanted is not None and wanted != count:
        started = f"{count} processes were started" if count > 1 else "this process was started alone"
        fault = UserError(
            f"ranks is {wanted}, but {started}: start the program with torchrun --nproc-per-node={wanted}, "
            f"or headway run … --ranks {wanted}"
        )
        raise shared(fault) if count > 1 else fault
    if count > 1 and missing:
        raise shared(
            UserError(
                f"WORLD_SIZE is {count}, but {missing[0]} is not in the environment: start with torchrun, or with "
                f"headway run … --ranks {count}, which set it"
            )
        )


def _connected(silence: timedelta) -> ProcessRanks:
    """The group of all processes, through gloo and, where each has a GPU of its own, NCCL."""
    direct = _one_gpu_each()
    backend = "cpu:gloo,cuda:nccl" if direct else "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    try:
        if dist.is_initialized():
            group, has_ended = dist.new_group(backend=backend, timeout=silence), None
        else:
            has_ended = _form(backend, silence)
            group = dist.group.WORLD
    except (RuntimeError, ValueError) as fault:
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise RanksLost(f"the ranks did not find each other at {place}: {_first_line(fault)}") from fault
    assert group is not None
    return ProcessRanks(group, silence.total_seconds(), direct, has_ended)


def _form(backend: str, silence: timedelta) -> Callable[[int], bool]:
    """Form the group of all processes. A connection that is not made in time is tried again, by all together.

    What is returned says whether a rank has ended.
    """
    store, rank, size = next(rendezvous("env://", timeout=silence))
    meeting = _meet(store, rank, size)

    def all_say(word: str, at: str) -> bool:
        """Whether every rank says this; each waits for all."""
        store.set(f"{meeting}/{at}/{rank}", word)
        return [store.get(f"{meeting}/{at}/{other}").decode() for other in range(size)] == [word] * size

    reason: Exception | None = None
    for attempt in range(_ATTEMPTS):
        reason = None
        try:
            place = PrefixStore(f"{meeting}/{attempt}", store)
            dist.init_process_group(backend, store=place, rank=rank, world_size=size, timeout=_CONNECTING)
        except (RuntimeError, ValueError) as fault:
            reason = fault
        store.set_timeout(silence)
        if all_say("failed" if reason else "connected", f"attempt {attempt}") and reason is None:
            dist.distributed_c10d._set_pg_timeout(silence, dist.group.WORLD)
            atexit.register(left)
            atexit.register(_say_over, store, f"{meeting}/over {rank}")
            return lambda other: bool(store.check([f"{meeting}/over {other}"]))
        left()
    raise reason or RanksLost("another rank could not connect")


def _say_over(store: Store, key: str) -> None:
    """This rank ends; who keeps the store may have ended before."""
    with contextlib.suppress(RuntimeError):
        store.set(key, "yes")


def _meet(store: Store, rank: int, size: int) -> str:
    """A name for this meeting of all ranks, before which nothing in the store was written under it.

    After a restart by torchrun the store may still hold what dead ranks wrote, such as their addresses. So each rank
    has a name that nobody had before, and goes on when rank 0 has answered to that name.
    """
    own = f"headway/{os.getpid()}-{time.time_ns()}-{rank}"
    store.set(f"headway/rank {rank}", own)
    if rank > 0:
        meeting = store.get(f"{own}/meeting").decode()
        store.set(f"{meeting}/rank {rank}", "is here")
        return meeting
    missing = set(range(1, size))
    while missing:
        for other in sorted(missing):
            store.set(f"{store.get(f'headway/rank {other}').decode()}/meeting", own)
            if store.check([f"{own}/rank {other}"]):
                missing.remove(other)
        time.sleep(0.02)
    return own


def _one_gpu_each() -> bool:
    local = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    return torch.cuda.is_available() and dist.is_nccl_available() and local <= torch.cuda.device_count()


def _first_line(fault: BaseException) -> str:
    return (str(fault).splitlines() or [type(fault).__name__])[0][:300]


def left() -> None:
    """Leave the group of processes; what cannot be closed any more is left as it is."""
    with contextlib.suppress(RuntimeError, ValueError):
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


class ProcessRanks:
    """The processes of a group of torch.distributed."""

    def __init__(
        self, group: dist.ProcessGroup, silence: float, direct: bool, has_ended: Callable[[int], bool] | None = None
    ) -> None:
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._group, self._silence, self._direct = group, silence, direct
        self._has_ended = has_ended
        """Whether a rank has ended; None where nobody says it."""

    def tell(self, content: Told, fault: BaseException | None = None) -> Sequence[Told]:
        message = {"content": dict(content), "fault": None if fault is None else as_told(fault)}
        told = [json.loads(text) for text in self._gathered(json.dumps(message).encode())]
        first = next((rank for rank, one in enumerate(told) if one["fault"] is not None), None)
        if first is None:
            return [one["content"] for one in told]
        if first == self.rank and fault is not None:
            raise shared(fault)
        raise shared(raised_by(first, told[first]["fault"])) from fault

    def _gathered(self, own: bytes) -> list[bytes]:
        """What each rank gives, by rank."""
        head = torch.zeros(_HEAD, dtype=torch.uint8)
        head[:_LENGTH] = torch.frombuffer(bytearray(len(own).to_bytes(_LENGTH)), dtype=torch.uint8)
        begin, room = own[: _HEAD - _LENGTH], _HEAD - _LENGTH
        if begin:
            head[_LENGTH : _LENGTH + len(begin)] = torch.frombuffer(bytearray(begin), dtype=torch.uint8)
        found = [one.numpy().tobytes() for one in self._all(head)]
        lengths = [int.from_bytes(one[:_LENGTH]) for one in found]
        if max(lengths) <= room:
            return [one[_LENGTH : _LENGTH + length] for one, length in zip(found, lengths, strict=True)]
        whole = torch.zeros(max(lengths), dtype=torch.uint8)
        whole[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        return [one.numpy().tobytes()[:length] for one, length in zip(self._all(whole), lengths, strict=True)]

    def _all(self, own: Tensor) -> list[Tensor]:
        found = [torch.empty_like(own) for _ in range(self.size)]
        with self._talking():
            dist.all_gather(found, own, group=self._group)
        return found

    def add_up(self, flat: Tensor) -> None:
        with self._talking(), self._at_hand(flat) as near:
            dist.all_reduce(near, group=self._group)

    def spread(self, flat: Tensor, source: int) -> None:
        with self._talking(), self._at_hand(flat) as near:
            dist.broadcast(near, group=self._group, group_src=source)

    def send(self, flat: Tensor, target: int) -> Callable[[], None]:
        near = flat if self._is_near(flat) else flat.cpu()
        with self._talking():
            work = dist.isend(near, group=self._group, group_dst=target)
        assert work is not None

        def wait(kept: Tensor = near) -> None:
            with self._talking():
                work.wait()

        return wait

    def receive(self, flat: Tensor, source: int) -> None:
        with self._talking(), self._at_hand(flat) as near:
            dist.recv(near, group=self._group, group_src=source)

    def outlive(self, rank: int) -> None:
        if rank == self.rank or self._has_ended is None:
            return
        until = time.monotonic() + _LAST_WORDS
        with contextlib.suppress(RuntimeError):  # the store has ended with the rank that kept it
            while time.monotonic() < until and not self._has_ended(rank):
                time.sleep(0.05)

    def _is_near(self, flat: Tensor) -> bool:
        """Whether the group takes a tensor where it lies."""
        return self._direct or flat.device.type == "cpu"

    @contextmanager
    def _at_hand(self, flat: Tensor) -> Iterator[Tensor]:
        """The tensor, or a copy on the host that is written back."""
        if self._is_near(flat):
            yield flat
            return
        near = flat.cpu()
        yield near
        flat.copy_(near)

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """What torch says of others that are gone, in one line."""
        try:
            yield
        except RuntimeError as fault:
            if is_shared(fault):
                raise
            if "timed out" in str(fault).lower() or "timeout" in str(fault).lower():
                raise RankSilent(f"another rank has not answered for {self._silence:g} s") from fault
            raise RanksLost("another rank has ended before the run was over") from fault
