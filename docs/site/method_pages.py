"""Writes what the documentation says of every method: `make pages` after a method of the catalogue came or changed.

* `docs/methods/NAME.md`, as `headway show NAME --markdown` prints it;
* in `docs/methods/README.md` the tables of methods and the refused compositions. A reason that somebody wrote stays;
* the number of methods in the README.

It ends with what the notes of a method still lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from headway.cli.method_page import lacking, page, price
from headway.errors import UserError
from headway.methods.catalogue import FAMILIES, METHODS
from headway.methods.method_notes import read_notes
from headway.methods.spelling import method

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "methods"
PARTS = re.compile(r"\(.*?\)(?= and |;|$)")
"""The arguments of slot values in the message of a refusal."""


def index(text: str) -> str:
    """The first page of the methods, with its tables as the catalogue has them."""
    for family, builders in FAMILIES.items():
        names = [build.__name__.replace("_", "-") for build in builders]
        text = _with_rows(text, rf"## {re.escape(family)}\n", map(_row, names))
    return _with_rows(text, r"Of all methods with the pieces[^\n]*\n", _refused(text))


def counted(text: str) -> str:
    """The README, with the number of methods."""
    return re.sub(r"\b\d+ methods\b", f"{len(METHODS)} methods", text)


def _row(name: str) -> str:
    cost = price(name)
    purpose = " ".join(read_notes(name)[0].split())
    cells = [f"[{name}]({name}.md)", purpose, *(cost[column] for column in ("down", "up", "client state", "passes"))]
    return f"| {' | '.join(cells)} |"


def _refused(text: str) -> list[str]:
    """The compositions with each piece of the table that are refused: those that stood there first, then new ones."""
    pieces = re.findall(r"^\| `([\w-]+)` \| \w+: ", text, re.MULTILINE)
    reasons = {one: why for name in METHODS for piece in pieces if (why := _reason(one := f"{name}+{piece}"))}
    stood = re.findall(
        r"^(\| `([\w+-]+)` \| .*)$", text.partition("### Refused")[2].partition("Other examples")[0], re.M
    )
    rows = {one: row for row, one in stood if one in reasons}
    return [*rows.values(), *(f"| `{one}` | {why} |" for one, why in reasons.items() if one not in rows)]


def _reason(spelled: str) -> str | None:
    """Why a composition is refused, without the arguments of its parts; None where it is not."""
    try:
        method(spelled)
    except UserError as refusal:
        return PARTS.sub("", str(refusal).partition(": ")[2]).partition(";")[0]
    return None


def _with_rows(text: str, heading: str, rows: Iterable[str]) -> str:
    """A page with other rows in the first table after a heading."""
    table = re.compile(rf"(^{heading}.*?^\|[-:| ]+\|\n)(?:\|[^\n]*\n)+", re.MULTILINE | re.DOTALL)
    found = table.search(text)
    assert found, f"the page has no table after {heading}"
    return text[: found.end(1)] + "".join(f"{row}\n" for row in rows) + text[found.end() :]


def main() -> None:
    for name in METHODS:
        (FOLDER / f"{name}.md").write_text(page(name), encoding="utf-8")
    for file, change in ((FOLDER / "README.md", index), (ROOT / "README.md", counted)):
        file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")
    for name in METHODS:
        for what in lacking(name):
            print(f"src/headway/methods/notes/{name}.md lacks {what}")


if __name__ == "__main__":
    main()
