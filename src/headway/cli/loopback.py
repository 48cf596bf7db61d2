"""How torch's launcher meets the ranks that it starts on this machine: by a port that only this machine can reach.

The launcher's own ways listen on every network of the machine, and unpickle what comes.
"""

from __future__ import annotations

import contextlib
import os
import socket

from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

NAME = "headway-loopback"
_HERE = "127.0.0.1"


class Loopback(RendezvousHandler):
    """One launcher and its ranks. All of them keep what they tell each other in one store, which the launcher holds."""

    def __init__(self, run: str) -> None:
        self._run, self._meetings = run, 0
        with socket.socket() as listening:
            listening.bind((_HERE, 0))
            listening.listen()
            self._port: int = listening.getsockname()[1]
            self._store = TCPStore(
                _HERE, self._port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
            )

    def get_backend(self) -> str:
        return NAME

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """The launcher alone; after a restart what it wrote before is out of sight."""
        self._meetings += 1
        store = PrefixStore(f"{self._run}/{self._meetings}", self._store)
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(_HERE, self._port))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run

    def shutdown(self) -> bool:
        return True


def _made(parameters: RendezvousParameters) -> RendezvousHandler:
    return Loopback(parameters.run_id)


def stay_on_this_machine() -> str:
    """Have ranks that are started here talk over the loopback alone; the name of the launcher's way to meet them."""
    rendezvous_handler_registry.register(NAME, _made)
    with contextlib.suppress(OSError):
        names = {name for _, name in socket.if_nameindex()}
        if own := next((name for name in ("lo", "lo0") if name in names), None):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", own)
    return NAME
