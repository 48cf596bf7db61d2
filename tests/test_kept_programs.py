"""Compiled programs are kept in a folder that nobody else can write to, and the environment is left as it was."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import COMPILING
from headway.engine import kept_programs as kept
from headway.engine.kept_programs import kept_programs, why_not_kept
from headway.user_cache import NotPrivate, private_folder

VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user who has set nothing but Headway's cache."""
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def _settings() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in VARIABLES}


def test_the_folder_is_its_user_s_alone(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        folder = private_folder("programs")
    finally:
        os.umask(before)
    assert folder == tmp_path / "cache" / "programs"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert private_folder("programs") == folder, "again, as it is there"


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_can_write_to_is_refused(mode: int) -> None:
    private_folder("programs").chmod(mode)
    with pytest.raises(NotPrivate, match=r"others can write to .*programs; chmod 700"):
        private_folder("programs")


def test_a_folder_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    private_folder("programs")
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    with pytest.raises(NotPrivate, match="belongs to another user"):
        private_folder("programs")


def test_a_folder_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    private_folder("programs")
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(NotPrivate, match="can put another folder in the place"):
        private_folder("programs")
    (tmp_path / "cache").chmod(0o1777)  # as /tmp: others may add, and not replace
    private_folder("programs")


def test_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").chmod(0o777)
    (tmp_path / "cache" / "programs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotPrivate, match="elsewhere"):
        private_folder("programs")


def test_a_cache_without_a_place_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "file"))
    with kept_programs():
        place = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        assert place.is_dir()
    assert not place.exists(), "what was compiled meanwhile is removed"
    line = why_not_kept()
    assert line is not None
    assert "\n" not in line
    assert "not kept" in line


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = _settings()
    with kept_programs():
        assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent == tmp_path / "cache" / "programs"
        os.environ["TRITON_CACHE_DIR"] = "as torch does it"
    assert _settings() == before
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    before = _settings()

    def fails() -> None:
        with kept_programs():
            assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "kernels")
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert _settings() == before


def test_a_folder_that_the_user_named_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "mine"))
    with kept_programs():
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "mine")
    assert why_not_kept() is None
    assert not (tmp_path / "cache").exists()


def test_torch_s_own_default_is_not_a_wish_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch writes it into the environment when it first compiles something."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", default_cache_dir())
    monkeypatch.setenv("TRITON_CACHE_DIR", f"{default_cache_dir()}/triton/0")
    before = _settings()
    with kept_programs():
        assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).is_relative_to(tmp_path)
        assert "TRITON_CACHE_DIR" not in os.environ
    assert _settings() == before


def test_every_version_of_torch_has_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept.torch, "__version__", "2.11.0+cpu")
    one = kept._machine()
    monkeypatch.setattr(kept.torch, "__version__", "2.12.0+cpu")
    assert kept._machine() != one
    monkeypatch.setattr(kept.platform, "machine", lambda: "another")
    assert kept._machine() not in (one, "torch-2.12.0+cpu")


PROGRAM = """\
import json, os, warnings
import headway as hw
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    result = hw.simulate("fedacg", model="linear", rounds=2, clients=10, cohort_size=4, steps=2, device="cpu",
        executor="batched:compiled", eval_samples=100)
left = [name for name in os.environ if name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")]
from torch._dynamo.utils import counters
print(json.dumps({
    "executor": result.executor,
    "found": counters["inductor"]["fxgraph_cache_hit"],
    "made": counters["inductor"]["fxgraph_cache_miss"],
    "loss": result.records[-1]["loss"],
    "told": [str(one.message) for one in told if "programs" in str(one.message)],
    "left": left,
}))
"""


def _in_a_process(tmp_path: Path) -> dict[str, object]:
    (tmp_path / "tmp").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def _files(folder: Path) -> list[Path]:
    """Files outside of the one folder that torch's compiler takes no other name for: headers of its own, compiled."""
    return [path for path in folder.rglob("*") if path.is_file() and "precompiled_headers" not in path.parts]


@pytest.mark.soak
@pytest.mark.skipif(*COMPILING[0].args, **COMPILING[0].kwargs)
def test_the_next_process_finds_the_program(tmp_path: Path) -> None:
    first, second = _in_a_process(tmp_path), _in_a_process(tmp_path)
    assert first["executor"] == second["executor"] == "batched:compiled"
    assert (first["found"], second["made"]) == (0, 0)
    assert first["made"] == second["found"] != 0
    assert first["loss"] == second["loss"]
    assert first["told"] == second["told"] == first["left"] == second["left"] == []
    assert _files(tmp_path / "tmp") == [], (
        "torch's own default, whose folder it makes when it is imported, has nothing in it"
    )
    private_folder("programs").chmod(0o777)
    third = _in_a_process(tmp_path)
    assert (third["found"], third["loss"]) == (0, first["loss"])
    (line,) = third["told"]  # type: ignore[misc]
    assert "others can write to" in line
    assert _files(tmp_path / "tmp") == [], "the folder of this start is removed"
