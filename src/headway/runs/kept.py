"""kept/: the server's state after some rounds, with what the clients of the round after it hold.

| file | holds |
|---|---|
| kept/round-N.json | the round, the checksums of both files, and whose states are kept |
| kept/round-N-server.safetensors | model, buffers and server state after round N, as the checkpoint had them |
| kept/round-N-clients.safetensors | the states of the clients of round N + 1, where clients keep any |

With these, round N + 1 can be trained again as the run had it: `headway.analysis` does. The last of all is of the round
before the last one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch

from headway.engine.client_rounds import ClientState, StateOf
from headway.engine.experiment import Experiment
from headway.engine.ranks import Ranks, all_or_none
from headway.engine.server import GlobalState
from headway.engine.simulation import Progress
from headway.errors import DamagedRun, UserError
from headway.runs.checkpoint import Checkpoint, read_tensors, tensors_of
from headway.runs.files import ensure_folder, read_checked, write_atomically, write_checked
from headway.scenario import Scenario
from headway.trees import moved, named_leaves, refill

FOLDER = "kept"


@dataclass(frozen=True)
class KeptRound:
    """What a run kept after a round."""

    round: int
    model: GlobalState
    states: Mapping[int, ClientState]
    """Of clients of the next round that had taken part before."""


def is_due(scenario: Scenario, round: int) -> bool:
    """Whether the state after a round is kept: of 20, after rounds 20, 40, …, and after the one before the last."""
    every = scenario.keep_checkpoints
    return every is not None and round < scenario.rounds and (round % every == 0 or round == scenario.rounds - 1)


def keep(folder: Path, experiment: Experiment, progress: Progress, state_of: StateOf, ranks: Ranks) -> None:
    """Keep the state after a round. Every rank asks for the clients' states; the first one writes."""
    clients = dict.fromkeys(experiment.client_rounds.cohort(progress.round + 1).clients)
    held = {client: state_of(client) for client in clients} if experiment.has_client_state else {}
    with all_or_none(ranks):
        if ranks.rank == 0:
            _write(ensure_folder(folder / FOLDER), progress, {at: one for at, one in held.items() if one is not None})
    ranks.tell({})


def _write(place: Path, progress: Progress, states: Mapping[int, ClientState]) -> None:
    name = _name(progress.round)
    named = {f"{client}/{path}": leaf for client, one in states.items() for path, leaf in named_leaves(one).items()}
    contents = {
        "server": safetensors.torch.save(tensors_of(progress)),
        "clients": safetensors.torch.save({path: leaf.cpu().contiguous().clone() for path, leaf in named.items()}),
    }
    for part, content in contents.items():
        write_atomically(place / f"{name}-{part}.safetensors", content)
    digests = {part: hashlib.sha256(content).hexdigest() for part, content in contents.items()}
    write_checked(place / f"{name}.json", {"round": progress.round, "sha256": digests, "clients": list(states)})


def _name(round: int) -> str:
    return f"round-{round:07d}"


def rounds(folder: Path) -> list[int]:
    """The rounds after which a run's folder has the state, in order."""
    place = folder / FOLDER
    found = (re.fullmatch(r"round-(\d{7,10})\.json", file.name) for file in place.iterdir()) if place.is_dir() else ()
    return sorted(int(one[1]) for one in found if one)


def load(folder: Path, experiment: Experiment, round: int) -> KeptRound:
    """What a run kept after a round, where its files are as they were written."""
    place, name = folder / FOLDER, _name(round)
    content = read_checked(place / f"{name}.json")
    try:
        digests, clients = dict(content["sha256"]), [int(one) for one in content["clients"]]
        server, own = str(digests["server"]), str(digests["clients"])
    except (KeyError, TypeError, ValueError):
        raise DamagedRun(f"{place / name}.json is damaged: it does not have sha256 and clients") from None
    model = Checkpoint(folder / "checkpoint", experiment).model(place / f"{name}-server.safetensors", server)
    tensors = read_tensors(place / f"{name}-clients.safetensors", own)
    like = experiment.initial_client_state
    paths = list(named_leaves(like))
    try:
        states = {at: refill(like, [tensors[f"{at}/{path}"] for path in paths]) for at in clients}
    except KeyError as missing:
        raise UserError(f"{place / name}-clients.safetensors does not fit this method: {missing} is missing") from None
    return KeptRound(round, model, {at: moved(one, experiment.device) for at, one in states.items()})
