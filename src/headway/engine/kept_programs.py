"""Compiled programs that the next process finds again: torch's own cache of them, in a private folder of the user's.

What torch keeps is unpickled and run when it is read, which is why nobody else may be able to write there (decision
13). By itself torch keeps it in a folder of /tmp that whoever comes first can make. Its keys hold the program, its
shapes, torch's sources and the compiler's settings; the folder's name holds the machine, so that a home folder may be
shared by several.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import platform
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from headway.user_cache import NotPrivate, private_folder

KIND = "programs"
_FOLDER, _KERNELS = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
"""Variables of the environment in which torch's and Triton's compilers look for their folder, each time anew."""


Names = Mapping[str, str | None]
"""Variables of the environment; None: it is not set."""


@contextmanager
def environment(names: Names) -> Iterator[None]:
    """These variables as they are given inside, and as before afterwards."""
    before = {name: os.environ.get(name) for name in names}
    _set(names)
    try:
        yield
    finally:
        _set(before)


def _set(names: Names) -> None:
    for name, value in names.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def kept_programs() -> Iterator[Names]:
    """Around all that may compile: programs are looked for, and left, in the user's cache.

    A folder that the user named in the environment is used in its place. Where the cache is not private, programs
    are compiled in a folder that is removed afterwards. The environment is as before in the end. What is yielded names
    the folder, for calls of a program that may compile it once more.
    """
    names: dict[str, str | None] = {name: os.environ.get(name) for name in (_FOLDER, _KERNELS)}
    with environment(names.copy()), ExitStack() as stack:  # torch may set them when it is imported
        lasting = True
        if not _is_named(names[_FOLDER]):
            try:
                place = private_folder(KIND) / _machine()
            except NotPrivate:
                place = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
                lasting = False
            names[_FOLDER] = str(place)
            if not _is_named(names[_KERNELS]):
                names[_KERNELS] = None  # Triton's is then inside of torch's
        stack.enter_context(environment(names))
        yield names if lasting else {}


def why_not_kept() -> str | None:
    """Why compiled programs are not kept, in a line for the user; None where they are."""
    if _is_named(os.environ.get(_FOLDER)):
        return None
    try:
        private_folder(KIND)
    except NotPrivate as reason:
        return f"compiled programs are not kept for the next run: {reason}"
    return None


def _is_named(folder: str | None) -> bool:
    """Whether the user has named a folder; torch writes its own default into the environment, too."""
    if not folder:
        return False
    with contextlib.suppress(ImportError, AttributeError):
        default = importlib.import_module("torch._inductor.runtime.cache_dir_utils").default_cache_dir()
        return not Path(folder).absolute().is_relative_to(Path(default).absolute())
    return True


def _machine() -> str:
    """A name for machines that can run the same programs: `torch-2.13.0-` and what tells their processors apart.

    The compiler uses all that this processor has, so a program may stop another one. GPUs are in torch's keys.
    """
    try:
        found = re.search(r"^(?:flags|Features)\s*:.*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    about = (
        platform.machine(),
        found[0] if found else platform.processor(),
        torch.version.cuda,
        platform.python_version(),
    )
    version = re.sub(r"[^\w.+-]", "-", torch.__version__)
    return f"torch-{version}-{hashlib.sha256(repr(about).encode()).hexdigest()[:12]}"
