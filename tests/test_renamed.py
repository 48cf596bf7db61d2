"""Slots that were renamed: runs stored under the old names go on with the same bits, and the old names still work.

tests/old_names has each of `METHODS` after two of four rounds, saved by commit 8d003e5, before the names changed. It
was made there by `play(folder, name, rounds=2)`, and the summaries, which name a machine, were removed.
"""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import headway as hw
from headway.errors import UserError
from headway.methods.renamed import RENAMED, current_name
from headway.methods.slots import Uploads
from headway.runs.digest import digest
from headway.runs.files import read_json, write_checked
from headway.runs.result import Result
from headway.runs.resume import lengthen
from headway.vectors import Vector

SAVED = Path(__file__).parent / "old_names"
MINE = hw.Method(
    broadcast=(hw.broadcast.model(), hw.vector("statistics")),
    local=hw.local.steered(0.3),
    server=(hw.average(), hw.server.statistics_mean(0.3)),
    name="mine",
)
"""An own method of renamed slots, which its fingerprints name."""
METHODS: dict[str, str | hw.Method] = {
    "gradma": "gradma:memory=6",
    "mimelite": "mimelite",
    "mifa": "mifa:rate_ratio=true,wait=true",
    "mine": MINE,
}
SETTINGS = hw.Scenario(
    participation=0.5, epochs=1, batch_size=4, rate=0.1, precision="fp64", device="cpu", executor="serial", seeds=1
)


def objects() -> dict[str, Any]:
    """A linear model and six clients of eight samples."""
    draw = np.random.default_rng(0)
    model = nn.Linear(5, 3)
    with torch.no_grad():
        for leaf in model.parameters():
            leaf.copy_(torch.from_numpy(draw.normal(size=tuple(leaf.shape))))
    sets = [(draw.normal(size=(8, 5)), draw.integers(0, 3, 8)) for _ in range(7)]
    return {"model": model, "clients": sets[:-1], "test": sets[-1]}


def play(folder: Path, name: str, rounds: int) -> Result:
    return hw.simulate(METHODS[name], SETTINGS.changed(rounds=rounds, checkpoint_every=1), out=folder, **objects())


def go_on(folder: Path, name: str) -> Result:
    """Play a saved run to its fourth round."""
    lengthen(folder, 4)
    method = METHODS[name]
    return hw.resume(folder, **({"method": method} if isinstance(method, hw.Method) else {}), **objects())


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = (folder / "checkpoint").glob("server-*.safetensors")
    return safetensors.torch.load(file.read_bytes())


@pytest.mark.parametrize("name", METHODS)
def test_a_run_saved_under_the_old_names_goes_on_as_if_it_had_the_new_ones(name: str, tmp_path: Path) -> None:
    """Of the saved run nearly the same numbers, as it may be of another machine; the folder then has new names."""
    old = Path(shutil.copytree(SAVED / name, tmp_path / "old"))
    before = json.dumps(read_json(old / "checkpoint" / "manifest.json")) + " ".join(tensors(old))
    assert any(stored in before for stored in RENAMED)
    went_on, whole = go_on(old, name), play(tmp_path / "whole", name, 4)
    assert [record["round"] for record in went_on.records] == [1, 2, 3, 4]
    found, wanted = tensors(old), tensors(tmp_path / "whole")
    assert found.keys() == wanted.keys()
    for path, leaf in wanted.items():
        torch.testing.assert_close(found[path], leaf, rtol=1e-9, atol=1e-12)
    assert went_on.records[-1]["accuracy"] == whole.records[-1]["accuracy"]
    after = read_json(old / "checkpoint" / "manifest.json")
    assert not any(stored in json.dumps(after) for stored in RENAMED)
    assert after["clients"] == read_json(tmp_path / "whole" / "checkpoint" / "manifest.json")["clients"]


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_has_the_bits_of_one_that_was_never_stopped(name: str, tmp_path: Path) -> None:
    """The saved names put into a run of this machine, so that its numbers can be compared bit by bit."""
    begun, whole = tmp_path / "begun", tmp_path / "whole"
    play(begun, name, 2)
    put_old_names(begun)
    go_on(begun, name)
    play(whole, name, 4)
    found, wanted = tensors(begun), tensors(whole)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[path], leaf) for path, leaf in wanted.items())
    rows = [(folder / "checkpoint" / "clients.rows") for folder in (begun, whole)]
    assert rows[0].is_file() == rows[1].is_file()


def put_old_names(folder: Path) -> None:
    """Write a checkpoint as it was before the names changed."""

    def old(name: str) -> str:
        for stored, now in RENAMED.items():
            name = name.replace(now, stored)
        return name

    manifest = read_json(folder / "checkpoint" / "manifest.json")
    content = safetensors.torch.save({old(name): leaf for name, leaf in tensors(folder).items()})
    (folder / "checkpoint" / manifest["server"]).write_bytes(content)
    manifest["sha256"] = sha256(content).hexdigest()
    manifest["clients"] = [[old(name), *form] for name, *form in manifest["clients"]]
    prints = manifest["fingerprints"]["now"]
    manifest["fingerprints"]["now"] = {old(name): value for name, value in prints.items()}
    write_checked(folder / "checkpoint" / "manifest.json", manifest)


def test_the_old_names_make_the_new_slots() -> None:
    for stored, now in RENAMED.items():
        slot, name = stored.split(".")
        home = getattr(hw, slot)
        assert getattr(home, name) is getattr(home, now.split(".")[1])
        assert name not in home.__all__, f"{stored} is deprecated: it is suggested to nobody"


def test_an_own_class_may_have_an_old_name() -> None:
    """Only what the method has under the new name, and not under the old one, is renamed."""

    class remembering:
        adds = True

        def update(self, model: Vector, uploads: Uploads, state: dict[str, Any]) -> tuple[Vector, dict[str, Any]]:
            return model, state

    own = hw.Method(server=(hw.average(), remembering()))
    both = hw.Method(server=(hw.server.update_memory(0.5, 0.5, 4), remembering()))
    for method in (own, both):
        parts = [name for name, _ in method.parts()]
        assert current_name("server/server.remembering/rows/weight", parts) == "server/server.remembering/rows/weight"
    parts = [name for name, _ in hw.method("gradma").parts()]
    for stored, now in (
        ("server/server.remembering/rows/weight", "server/server.update_memory/rows/weight"),
        ("slots/local.remembering/last/weight", "slots/local.gradient_memory/last/weight"),
        ("the method's part 'local.remembering'", "the method's part 'local.gradient_memory'"),
        ("model/server.remembering/weight", "model/server.remembering/weight"),
        ("server/server.remembering_more/rows", "server/server.remembering_more/rows"),
    ):
        assert current_name(stored, parts) == now


def test_fingerprints_of_renamed_slots_stay() -> None:
    """They are what they were before the names changed."""
    assert read_json(SAVED / "mine" / "checkpoint" / "manifest.json")["fingerprints"]["now"][
        "the method's part 'local.steered'"
    ] == digest(hw.local.server_momentum_step(0.3))


def test_another_slot_than_the_saved_one_is_still_refused(tmp_path: Path) -> None:
    old = Path(shutil.copytree(SAVED / "mine", tmp_path / "old"))
    lengthen(old, 4)
    other = hw.Method(
        broadcast=MINE.broadcast, local=hw.local.server_momentum_step(0.4), server=MINE.server, name="mine"
    )
    with pytest.raises(UserError, match="server_momentum_step' changed"):
        hw.resume(old, method=other, **objects())
