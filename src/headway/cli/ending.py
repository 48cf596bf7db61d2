"""How a command ends: what went wrong as one line on standard error, and an exit code.

0 done, 2 a mistake in the request, 1 a failure of ours or of the machine, 128 + n stopped by signal n (130: Ctrl-C).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from headway import elsewhere
from headway.errors import (
    CallbackError,
    ClientError,
    Interrupted,
    MachineError,
    RankFailed,
    RankSilent,
    RanksLost,
    RunsFailed,
    SlotError,
    UserError,
    WorkerFailed,
    is_shared,
    readable,
    shown,
)
from headway.setting_values import is_text

if TYPE_CHECKING:
    from typer import Context

STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that ask a program to end; Windows does not have the last."""


class Ended(Exception):
    """A command's end that is understood: the line to print and the exit code."""

    def __init__(self, line: str, code: int) -> None:
        super().__init__(line)
        self.code = code
        self.said_elsewhere = False
        """Whether another process prints the line."""


class resumable:
    """Says how to go on when a signal or the machine ends what is inside.

    `folder` is that of a run or of a comparison; `again` says that the same command goes on.
    """

    def __init__(self, folder: Path, again: bool = False) -> None:
        self.folder, self.again = folder, again

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        if fault is None:
            return
        advice = ""
        if self.again:
            advice = f"; the same command goes on: headway {shlex.join(sys.argv[1:])}"
        elif os.path.isfile(self.folder / "scenario.toml"):
            advice = f"; go on with: headway resume {shlex.quote(str(self.folder))}"
        if isinstance(fault, KeyboardInterrupt):
            raise _in_place_of(fault, Ended(f"stopped{advice or ' before it began'}", _stopped(fault))) from None
        line = of_the_machine(fault)
        if line is not None:
            raise _in_place_of(fault, Ended(f"{line}{advice}", 1)) from None


def _in_place_of(fault: BaseException, ended: Ended) -> Ended:
    """The end of a command for a fault, with what is known of who else says it."""
    ended.said_elsewhere = _said_elsewhere(fault)
    return ended


LAUNCHED = "HEADWAY_LAUNCHED"
"""In the environment of ranks that `headway run --ranks` has started, and whose death it reports itself."""


def this_rank() -> int:
    """The number of this process among those that torchrun has started; 0 for one by itself."""
    rank, count = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    return int(rank) if rank.isdecimal() and count not in ("", "1") else 0


def _said_elsewhere(fault: BaseException) -> bool:
    """Whether another process tells the user of a fault: of what all ranks raise, rank 0 does.

    Of what only one rank knows, such as that its disk is full, that one does.
    """
    if isinstance(fault, Ended):
        return fault.said_elsewhere
    if isinstance(fault, RankFailed):
        return True
    if isinstance(fault, RanksLost) and not isinstance(fault, RankSilent) and LAUNCHED in os.environ:
        return True
    if of_the_machine(fault) is not None and not isinstance(fault, MachineError):
        return False
    return this_rank() > 0 and (is_shared(fault) or isinstance(fault, RanksLost | KeyboardInterrupt))


def of_the_machine(fault: BaseException) -> str | None:
    """A failure of the machine in one line; None for any other."""
    if isinstance(fault, MachineError):
        return str(fault)
    if isinstance(fault, OSError):
        return _of_the_system(fault)
    if isinstance(fault, UnicodeEncodeError):
        return f"{shown(fault.object[max(fault.start - 20, 0) : fault.end + 20])} cannot be written as {fault.encoding}"
    if isinstance(fault, MemoryError) or (isinstance(fault, RuntimeError) and "allocate memory" in str(fault)):
        return f"there is too little memory ({str(fault) or type(fault).__name__})"
    return None


def _of_the_system(fault: OSError) -> str:
    """What the operating system refused, and of which files."""
    places = [shown(place) for place in (fault.filename, fault.filename2) if place is not None]
    return ": ".join([fault.strerror or str(fault) or type(fault).__name__, *places])


def _stopped(fault: KeyboardInterrupt) -> int:
    return 128 + (fault.number if isinstance(fault, Interrupted) else signal.SIGINT)


def complain(message: str) -> None:
    """One line on standard error, where there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(f"headway: {readable(message)}", file=sys.stderr, flush=True)


def answered(command: Callable[[], object]) -> int:
    """The exit code of a command, after its complaint; what is not understood is raised."""
    _open_standard_streams()
    heard: list[int] = []

    def raised(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise Interrupted(number)

    try:
        _check_arguments(sys.argv[1:])
        if sys.stdout is None:
            raise MachineError("standard output is closed; give it a place, such as > /dev/null")
        with _signals(raised, instead_of=(signal.SIG_DFL, signal.default_int_handler)):
            code = command()
        if heard:  # typer makes an exit code of it
            raise Interrupted(heard[0])
        try:
            sys.stdout.flush()
        except OSError as fault:
            raise MachineError(f"standard output cannot be written: {of_the_machine(fault)}") from None
    except BaseException as fault:
        known = _complaint(fault)
        if heard and this_rank() > 0:
            known = "", 128 + heard[0]
        elif heard and not isinstance(fault, Ended):  # whatever a module in the middle of its import makes of it
            known = "stopped", 128 + heard[0]
        if known is None:
            raise
        line, code = known
        with _signals(signal.SIG_IGN):  # a second Ctrl-C has the same answer
            _let_go_of_standard_output()
            if line and not _said_elsewhere(fault):
                complain(line)
    return code if isinstance(code, int) else 0


def _check_arguments(arguments: list[str]) -> None:
    """Refuse an argument that is not text, such as the name of a file in another encoding."""
    wrong = next((argument for argument in arguments if not is_text(argument)), None)
    if wrong is not None:
        raise UserError(f"an argument is not UTF-8 text: {shown(wrong)}; use other letters, or rename the file")


def _complaint(fault: BaseException) -> tuple[str, int] | None:
    """Line and code of what is understood; an empty line where all was said."""
    if isinstance(fault, SystemExit) and isinstance(fault.__context__, OSError):  # typer's answer to a closed pipe
        fault = fault.__context__
    return _of_headway(fault) or _of_system_calls(fault) or _of_typer(fault)


def _of_headway(fault: BaseException) -> tuple[str, int] | None:
    """Line and exit code of an error that Headway raises, or of a Ctrl-C."""
    if isinstance(fault, Ended):
        return str(fault), fault.code
    if isinstance(fault, UserError):
        return str(fault), 2
    if isinstance(fault, ClientError | SlotError | CallbackError | RunsFailed | WorkerFailed):
        return str(fault), 1
    return ("stopped", _stopped(fault)) if isinstance(fault, KeyboardInterrupt) else None


def _of_system_calls(fault: BaseException) -> tuple[str, int] | None:
    """Line and exit code of a failure of the machine. A file without a name can only be standard output."""
    line = of_the_machine(fault)
    if line is not None and isinstance(fault, OSError) and fault.filename is None:
        line = f"standard output or a file cannot be written: {line}"
    return None if line is None else (line, 1)


def _of_typer(fault: BaseException) -> tuple[str, int] | None:
    """Line and exit code of a mistake in a command line: Typer's errors are those that have `format_message`."""
    if not hasattr(fault, "format_message"):
        return None
    message, context = fault.format_message(), getattr(fault, "ctx", None)
    message = _of_elsewhere(getattr(fault, "option_name", None), context) or message
    command = context.command_path if context else "headway"
    return (f"{message} ({command} --help)" if message else "", 2)  # no command at all: the help was printed


def _of_elsewhere(flag: str | None, context: Context | None) -> str | None:
    """What to say to a flag that another library has, where this command has the setting."""
    has_settings = context is not None and any(parameter.name == "rounds" for parameter in context.command.params)
    hint = elsewhere.pointer(flag, flag=True) if flag and has_settings else None
    return f"there is no flag '{flag}'; {hint}" if hint else None


def _open_standard_streams() -> None:
    """A closed stream's number would be given to the next file that is opened, and get what libraries print."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _let_go_of_standard_output() -> None:
    """What cannot be written there goes nowhere; else Python complains at its end."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stopping() -> list[int]:
    """The signals of `STOPPING` that this system has."""
    return [getattr(signal, name) for name in STOPPING if hasattr(signal, name)]


Answer = Callable[[int, FrameType | None], object] | signal.Handlers
"""What a process does when a signal comes."""


@contextlib.contextmanager
def _signals(handler: Answer, instead_of: tuple[Answer, ...] | None = None) -> Iterator[None]:
    """Another answer to Ctrl-C, SIGTERM and SIGHUP (a terminal that closes) inside.

    Only in place of one of the answers `instead_of`, where they are given: who ignores a signal goes on doing so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _stopping()}
    changed = {number: old for number, old in before.items() if instead_of is None or old in instead_of}
    try:
        for number in changed:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in changed.items():
            signal.signal(number, old or signal.SIG_DFL)
