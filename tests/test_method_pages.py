"""The pages of `docs/methods` are what `headway show --markdown` makes, and say what the code and the tests say."""

from __future__ import annotations

import dataclasses
import inspect
import re
import runpy
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

import headway as hw
from command_line import commands
from conftest import experiment, played
from headway.cli.flags import value
from headway.cli.main import app
from headway.cli.method_page import lacking, logged, page
from headway.engine.cost import cost
from headway.errors import UserError
from headway.methods import catalogue, further, modifiers, server
from headway.methods.arguments import Momentum, ranges
from headway.methods.catalogue import METHODS, MODIFIERS, Entry
from headway.methods.method import SLOTS, Method
from headway.methods.method_notes import NOTES
from headway.methods.spelling import defaults, method, pieces
from headway.scenario import Scenario

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "methods"
NOTES_FOLDER = ROOT / "src" / "headway" / "methods" / "notes"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
INDEX = PAGES.pop("README")
NAMES = list(METHODS)
EVERY = {**PAGES, "README": INDEX}
HEADINGS = [
    "Equations",
    "Slots",
    "Arguments",
    "Cost",
    "What is logged",
    "Details that matter",
    "What the authors' program does differently",
    "Tested",
    "Run it",
    "Source",
]


def sections(page: str, level: str = "##") -> dict[str, str]:
    """What stands under each heading."""
    pieces = re.split(rf"^{level} (.+)$", page, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each table, without its heading and without the marks of code."""
    found = re.findall(r"^\|[-:| ]+\|\n((?:\|.*\|\n)+)", text, re.MULTILINE)
    return [[[cell.strip().strip("`") for cell in row.split("|")[1:-1]] for row in body.splitlines()] for body in found]


def code(text: str) -> list[str]:
    """What is marked as code in the running text."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


@cache
def prices(name: str) -> list[str]:
    """Down, up, client state, server memory and passes, as `headway show` rounds them."""
    found = cost(method(name))
    numbers = (found.down, found.up, found.client_state, found.server_memory, found.passes)
    return [f"{number:.3g}" for number in numbers]


def test_every_method_has_a_page_and_every_page_a_method() -> None:
    assert sorted(PAGES) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_what_the_command_makes(name: str) -> None:
    assert PAGES[name] == page(name), "make pages writes it again"


def test_the_command_prints_a_page() -> None:
    answer = CliRunner().invoke(app, ["show", "fedacg", "--markdown"], catch_exceptions=False)
    assert answer.output == PAGES["fedacg"]


@pytest.mark.parametrize("spelled", ["fedprox+acg", "fedacg:lam=0.9", "fedagc", "acg"])
def test_a_page_is_of_one_method_of_the_catalogue(spelled: str) -> None:
    with pytest.raises(UserError, match="one method of the catalogue"):
        page(spelled)


def test_a_new_method_has_a_page_before_it_has_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its equations, slots, arguments, costs and source come from the catalogue, what it logs from a run."""

    def fresh(lam: Momentum = 0.5) -> Method:
        """m ← λm + Δ ; θ ← θ + m

        Somebody, A paper, 2026, Alg. 1.
        """
        return Method(server=server.momentum(lam), local=method("gradma-w").local)

    monkeypatch.setitem(METHODS, "fresh", Entry("fresh", fresh))
    found = sections(page("fresh"))
    assert list(found) == [heading for heading in HEADINGS if heading not in NOTES[3:5]]
    assert "m ← λm + Δ ; θ ← θ + m" in found["Equations"]
    assert tables(found["Arguments"]) == [[["lam", "0.5", "0 ≤ lam < 1", ""]]]
    assert tables(found["What is logged"]) == [[["local_correction", ""]]]
    assert "headway run fresh" in found["Run it"]
    assert found["Source"].strip() == "Somebody, A paper, 2026, Alg. 1."


@pytest.mark.parametrize("text", ["A line.\n\n## Argumens\n\n* `lam`: λ\n", "A line.\n\n## Arguments\n\n* `mu`: μ\n"])
def test_notes_of_what_is_not_there_are_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "fedacg.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr("headway.methods.method_notes.resources.files", lambda package: tmp_path)
    with pytest.raises(UserError, match="notes of fedacg"):
        page("fedacg")


def test_every_file_of_notes_belongs_to_a_method() -> None:
    assert {path.stem for path in NOTES_FOLDER.glob("*")} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_what_it_says_is_logged_is(name: str) -> None:
    """In its default form, or in the form that the meaning names."""
    for key, meaning in (row for table in tables(sections(PAGES[name])["What is logged"]) for row in table):
        assert meaning
        form = re.search(r"`(\w+=\w+)`", meaning)
        assert key in logged(f"{name}:{form[1]}" if form else name)


def test_what_every_round_records_is_written_down() -> None:
    text = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    told = {name for row in tables(sections(text)["What a round records"])[0] for name in re.findall(r"\w+", row[0])}
    run = hw.simulate("fedavg", rounds=1, clients=20, model="linear", steps=1, executor="serial", device="cpu")
    assert run.records[0].keys() <= told


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_its_title_and_headings(name: str) -> None:
    assert not lacking(name), "the notes of the method lack what its page must say"
    title, line = PAGES[name].split("\n\n")[:2]
    assert title == f"# {name}"
    assert line
    assert not line.startswith("#")
    found = sections(PAGES[name])
    assert list(found) == HEADINGS
    assert all(text.strip() for text in found.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_equations_are_the_catalogue_s(name: str) -> None:
    first = (inspect.getdoc(METHODS[name].build) or "").splitlines()[0]
    assert f"```text\n{first}\n```" in sections(PAGES[name])["Equations"]


@pytest.mark.parametrize("name", NAMES)
def test_the_slots_are_the_method_s(name: str) -> None:
    built = method(name)
    expected = [[slot, " + ".join(repr(part) for part in getattr(built, slot))] for slot in SLOTS]
    expected.append(["wire", f"up {built.wire.up!r}, down {built.wire.down!r}"])
    assert tables(sections(PAGES[name])["Slots"]) == [expected]


@pytest.mark.parametrize("name", NAMES)
def test_the_arguments_are_the_catalogue_s(name: str) -> None:
    """Names, defaults and ranges; a truth value is written as it is spelled."""
    allowed = ranges(METHODS[name].build)
    expected = []
    for argument, default in defaults(METHODS[name]).items():
        truth = isinstance(default, bool)
        limit = "true or false" if truth else str(allowed[argument]).replace("value", argument)
        expected.append([argument, str(default).lower() if truth else str(default), limit])
    found = tables(sections(PAGES[name])["Arguments"])
    assert [row[:3] for table in found for row in table] == expected
    assert all(row[3] for table in found for row in table)


@pytest.mark.parametrize("name", NAMES)
def test_the_costs_are_the_measured_ones(name: str) -> None:
    assert tables(sections(PAGES[name])["Cost"]) == [[prices(name)]]


@pytest.mark.parametrize("name", EVERY)
def test_the_tests_it_names_exist(name: str) -> None:
    """Each line names a file and functions in it."""
    lines = sections(EVERY[name])["Tests" if name == "README" else "Tested"].split("\n* ")[1:]
    assert lines
    for line in lines:
        file, *functions = code(line.split("\n\n")[0])
        source = (ROOT / file).read_text(encoding="utf-8")
        assert functions
        for function in functions:
            assert f"def {function}(" in source, f"{file} has no {function}"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_that_names_the_references_is_in_them(name: str) -> None:
    """A method is a case of a test only where its name begins a spelling there."""
    named = sections(PAGES[name])["Tested"]
    if "tests/test_reference.py" in named:
        source = (ROOT / "tests" / "test_reference.py").read_text(encoding="utf-8")
        assert re.search(rf'"{name}["+:]', source)


@cache
def group() -> Any:
    """The commands, which no test changes."""
    return typer.main.get_command(app)


def understood(verb: str, words: list[str]) -> list[str]:
    """The methods of a command line whose flags and values are all allowed; nothing is run."""
    given = group().commands[verb].make_context(verb, words).params
    fields = [setting.name for setting in dataclasses.fields(Scenario) if setting.name != "method"]
    Scenario().changed(**{field: value(field, given[field]) for field in fields if given[field] is not None})
    methods: list[str] = given["methods"] if verb == "compare" else [given["method"]]
    return methods


@pytest.mark.parametrize("name", EVERY)
def test_its_commands_parse(name: str) -> None:
    lines = commands(EVERY[name])
    assert lines
    for line in lines:
        _, verb, *words = shlex.split(line)
        spelled = understood(verb, words)
        assert all(method(each) for each in spelled)
        assert name == "README" or name in {piece.partition(":")[0] for each in spelled for piece in pieces(each)}


@pytest.mark.parametrize("name", EVERY)
def test_the_flags_and_options_it_names_exist(name: str) -> None:
    """`--weights uniform`, `half=false` and `fedprox+acg` in the text are understood as they stand."""
    flags = {flag for option in group().commands["run"].params for flag in (*option.opts, *option.secondary_opts)}
    for text in code(EVERY[name].split("### Refused")[0]):
        if text.startswith("--"):
            flag, *value = text.split()
            assert flag in flags
            assert not value or understood("run", ["fedavg", flag, *value])
        elif re.fullmatch(r"\w+=[\w.-]+", text):
            method(f"{name}:{text}")
        elif re.fullmatch(r"[\w-]{2,}(:\S+)?\+\S+", text):
            method(text)


@pytest.mark.parametrize("name", NAMES)
def test_what_it_calls_the_same_method_is_the_same(name: str) -> None:
    text = " ".join(PAGES[name].split())
    assert all(method(other) == method(name) for other in re.findall(r"the same method as `([^`]+)`", text))


@pytest.mark.parametrize("name", EVERY)
def test_its_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", EVERY[name]):
        path, _, place = target.partition("#")
        file = (FOLDER / path).resolve() if path else FOLDER / f"{name}.md"
        assert file.is_file(), target
        assert file.is_relative_to(ROOT), target
        if place:
            heads = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert place in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}, target


def test_every_function_of_the_catalogue_is_listed() -> None:
    """One that is in no family would be found by no name and by no test."""
    written = {
        builder.__name__
        for module in (catalogue, further, modifiers)
        for builder in vars(module).values()
        if inspect.isfunction(builder)
        and builder.__module__ == module.__name__
        and not builder.__name__.startswith("_")
    }
    assert written == {entry.build.__name__ for entry in (*METHODS.values(), *MODIFIERS.values())}


def test_notes_that_are_not_written_yet_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "unnoted", Entry("unnoted", METHODS["fedavgm"].build))
    monkeypatch.setattr("headway.cli.method_page.logged", lambda name: ["speed"])
    first, *others = lacking("unnoted")
    assert first == "a first line that says what the method is for"
    assert [re.findall(r"`(.+)`|'(## .+)'$", line)[0] for line in others] == [
        *((name, "") for name in ("momentum", "server_rate", "rate_ratio", "speed")),
        *(("", f"## {heading}") for heading in HEADINGS[5:8]),
    ]


# The first page.

MAKER = runpy.run_path(str(ROOT / "docs" / "site" / "method_pages.py"))
"""What `make pages` runs."""


def test_make_pages_finds_nothing_to_change() -> None:
    """Also where a row is missing, or one is of a method or a composition that is not there."""
    damaged = re.sub(r"^\| \[(fedcm|csgd)\].*\n", "| [gone](gone.md) | | 1 | 1 | 0 | 1 |\n", INDEX, flags=re.MULTILINE)
    first = "| `fedacg+momentum` | both set the server's base, to two momenta |\n"
    damaged = damaged.replace(first, "| `gone+acg` | the same |\n")
    assert damaged.count("gone") == 5
    written = "| `fedacg+momentum` | both set the server slot, to momentum and momentum |\n"
    rest, end = INDEX.replace(first, "").split("\nOther examples", 1)
    assert MAKER["index"](damaged) == f"{rest}{written}\nOther examples{end}"
    assert MAKER["counted"]("has 3 methods: 12 rows") == f"has {len(NAMES)} methods: 12 rows"


def test_the_readme_has_the_number_of_methods() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"from SlowMo to DiLoCo: {len(METHODS)} methods," in text
    assert MAKER["counted"](text) == text


def test_the_first_page_lists_every_method_with_its_costs() -> None:
    rows = {row[0]: row[2:] for table in tables(INDEX) for row in table if len(row) == 6 and row[0].startswith("[")}
    assert sorted(rows) == sorted(f"[{name}]({name}.md)" for name in NAMES), "make pages writes the missing rows"
    for name in NAMES:
        down, up, state, _, passes = prices(name)
        assert rows[f"[{name}]({name}.md)"] == [down, up, state, passes]


def test_the_first_page_says_of_each_method_what_its_own_page_says() -> None:
    for table in tables(INDEX):
        for row in table:
            if row[0].startswith("[") and len(row) == 6:
                name = row[0][1:].partition("]")[0]
                assert PAGES[name].split("\n\n")[1].replace("\n", " ") == row[1]


def _composed() -> dict[str, str]:
    return sections(sections(INDEX)["Compositions"], "###")


def _pieces() -> list[str]:
    return [row[0] for row in tables(sections(INDEX)["Compositions"])[0]]


def test_the_pieces_and_their_options_are_the_catalogue_s() -> None:
    known = {**METHODS, **MODIFIERS}
    assert {*MODIFIERS} <= {*_pieces()}
    for piece, _, options in tables(sections(INDEX)["Compositions"])[0]:
        assert options.replace("`", "").split(", ") == list(defaults(known[piece]))


def _refuses(spelled: str) -> bool:
    try:
        method(spelled)
    except UserError:
        return True
    return False


def test_the_refused_compositions_are_these() -> None:
    all_of_them, examples = tables(_composed()["Refused"])
    refused = {f"{name}+{piece}" for name in NAMES for piece in _pieces() if _refuses(f"{name}+{piece}")}
    assert {row[0] for row in all_of_them} == refused, "make pages writes the missing rows"
    assert all(_refuses(row[0]) for row in examples)


@pytest.mark.parametrize("row", tables(_composed()["The ablation of FedACG"])[0], ids=lambda row: row[3])
def test_the_ablation_of_fedacg_in_compositions(row: list[str]) -> None:
    """Which slots are set, and the same model after four rounds as the other spelling gives."""
    momentum, lookahead, pull, composition, same = row
    parts = repr(method(composition))
    found = [word in parts for word in ("momentum(", "lookahead(", "proximal(")]
    assert found == [cell == "yes" for cell in (momentum, lookahead, pull)]
    one, two = (played(experiment(spelled))[1].model.theta.flat() for spelled in (composition, same))
    assert torch.allclose(one, two, rtol=0, atol=1e-12)


def test_the_ablation_has_six_rows() -> None:
    rows = {tuple(row[:3]) for row in tables(_composed()["The ablation of FedACG"])[0]}
    assert rows == {(m, a, p) for m, a in (("–", "–"), ("yes", "–"), ("yes", "yes")) for p in ("–", "yes")}
