"""The command `headway`, also as `python -m headway`."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Ctrl-C while modules are imported has the same answer as later: one line."""
    try:
        from headway.cli.main import main as command

        command()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("headway: stopped", file=sys.stderr)
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command is over: no traceback of Python's own end


if __name__ == "__main__":
    main()
