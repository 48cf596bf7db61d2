"""The documentation leads somewhere, its notebooks run, and what it counts is counted."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

import headway
from command_line import commands
from headway.cli.main import app
from headway.methods.catalogue import METHODS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")))
}
NOTEBOOKS = {
    path.relative_to(ROOT).as_posix(): json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(DOCS.glob("notebooks/*.ipynb"))
}
TEXTS = PAGES | {
    name: "\n\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    for name, notebook in NOTEBOOKS.items()
}
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
HOOKS = (DOCS / "site" / "hooks.py").read_text(encoding="utf-8")
MADE = {f"docs/{page}" for page in re.findall(r'"(reference/\w+\.md)"', HOOKS)}
"""Pages that the site's hooks write; only other pages of the site link to them."""


def without_code(text: str) -> str:
    return re.sub(r"^ *(`{3,}).*?^ *\1$", "", text, flags=re.MULTILINE | re.DOTALL)


def places(text: str) -> set[str]:
    """The anchors of a page's headings."""
    heads = re.findall(r"^#+ (.+)$", without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(TEXTS[name])):
        path, _, place = target.partition("#")
        if re.match(r"https?:", target):
            continue
        file = ((ROOT / name).parent / path).resolve() if path else ROOT / name
        assert file.is_relative_to(ROOT), target
        address = file.relative_to(ROOT).as_posix()
        assert file.exists() or (address in MADE and name.startswith("docs/")), target
        if place and address not in MADE:
            assert place in places(TEXTS[address]), target


def test_every_page_is_in_the_navigation() -> None:
    """Those of methods and decisions are put there by the hooks."""
    listed = set(re.findall(r"(?:: |- )([\w/-]+\.(?:md|html))$", SITE, re.MULTILINE))
    pages = {name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")}
    written = {page for page in pages if not re.match(r"(methods|decisions)/(?!README)", page)}
    notebooks = {name.removeprefix("docs/").replace(".ipynb", ".md") for name in NOTEBOOKS}
    beside = {"contributing.md", "changelog.md", "board.html"}
    assert listed == written | notebooks | beside | {page.removeprefix("docs/") for page in MADE}


def test_the_site_loads_nothing_from_elsewhere() -> None:
    assert "font: false" in SITE
    assert not re.search(r"https?://", SITE)
    assert not re.search(r"url\(|@import", (DOCS / "site" / "extra.css").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(DOCS / "notebooks" / "execute.py"), str(ROOT / name)]
    here = os.environ | {"TMPDIR": str(tmp_path)}
    ended = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_small_and_keeps_text_only(name: str) -> None:
    outputs = [output for cell in NOTEBOOKS[name]["cells"] for output in cell.get("outputs", [])]
    assert (ROOT / name).stat().st_size < 20_000
    assert all(output["output_type"] == "stream" for output in outputs)


def test_what_the_recipes_print_works() -> None:
    """Its Python runs, its commands parse."""
    for block in re.findall(r"```python\n(.*?)```", PAGES["docs/recipes.md"], re.DOTALL):
        exec(compile(block, "recipes.md", "exec"), {})
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGES["docs/local-training.md"], re.DOTALL):
        exec(compile(block, "local-training.md", "exec"), names)
    group = typer.main.get_command(app)
    pages = ("docs/recipes.md", "docs/index.md", "docs/local-training.md", "CONTRIBUTING.md")
    lines = [line for name in pages for line in commands(PAGES[name])]
    assert len(lines) > 15
    for line in lines:
        _, verb, *words = shlex.split(line)
        command = group.commands[verb]
        if hasattr(command, "commands"):
            command, words = command.commands[words[0]], words[1:]
        command.make_context(verb, words)


def test_the_number_of_methods_is_that_of_the_catalogue() -> None:
    """It stands in the README, and nowhere else."""
    found = {name: re.findall(r"\b(\d+) methods\b", text) for name, text in TEXTS.items() if name != "CHANGELOG.md"}
    assert {name: numbers for name, numbers in found.items() if numbers} == {"README.md": [str(len(METHODS))]}, (
        "make pages"
    )


def test_the_architecture_draws_every_floor_in_the_order_of_the_import_rule() -> None:
    """And its table names every file of the engine."""
    rule = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0]
    floors = [{*layer.split(" | ")} for layer in rule["layers"] if layer != "__main__"]
    page = PAGES["docs/architecture.md"]
    drawing = page.partition("```text\n")[2].partition("```")[0]
    drawn = [{*re.findall(r"^ (\w+) ", floor, re.MULTILINE)} for floor in drawing.split("─\n")]
    assert drawn == floors
    table = page.partition("| files of `engine` |")[2].partition("\n\n")[0]
    named = {*re.findall(r"`(\w+)`", " ".join(re.findall(r"^\|([^|]+)\|", table, re.MULTILINE)))}
    assert named == {path.stem for path in (ROOT / "src/headway/engine").glob("*.py")} - {"__init__"}


def test_the_places_for_new_things_are_there() -> None:
    table = PAGES["docs/architecture.md"].partition("## Where a new thing goes")[2].partition("## Glossary")[0]
    places = {*re.findall(r"`(\w+\.py|\w+/[\w/.]+)`", table)} - {"papers/PAPER"}
    assert len(places) > 10
    assert [place for place in places if not (ROOT / "src" / "headway" / place).exists()] == []


def test_the_version_has_one_source() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "headway.__version__"}
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [headway.__version__]


@pytest.mark.parametrize(
    ("name", "line"), [("README.md", r"# an extra; also: (.+)"), ("docs/index.md", r"an extra: ([^.]+\.[^.]+)\.")]
)
def test_every_extra_is_named_where_one_installs(name: str, line: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = re.search(line, PAGES[name])
    assert found is not None
    named = {*re.findall(r"\w+", found[1])} - {"pip", "install", "e", "also"}
    assert named | {"tensorboard"} == {*project["optional-dependencies"]} - {"dev"}


def test_the_five_papers_are_cited() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert len(re.findall(r"^  - type: ", citation, re.MULTILINE)) == 5


def test_make_help_says_what_every_target_does() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[0].split()
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^make (\w+) +\S", told, re.MULTILINE) == targets


def test_the_fast_tests_of_make_check_are_there() -> None:
    """Files, and tests in them: those that are named, and those that are left out."""
    command = ["make", "--no-print-directory", "-n", "check"]  # a make that plays this test would have its own lines
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [word.strip("'") for word in planned.splitlines()[-1].split() if "tests/" in word]
    assert len(names) > 20
    for name in names:
        file, _, test = name.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {test.partition('[')[0]}" in text, name


def test_targets_that_pages_name_exist() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for name in ("CONTRIBUTING.md", "docs/index.md", "docs/architecture.md", "docs/laboratory/fuzzing.md"):
        assert {*re.findall(r"`make (\w+)`", PAGES[name])} <= {*targets}


def test_pre_commit_uses_the_project_s_own_tools() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"repo: (\S+)", hooks) == ["local"]
    assert set(re.findall(r"entry: ([^\s,]+)", hooks)) == {
        f".venv/bin/{tool}" for tool in ("ruff", "mypy", "lint-imports")
    }
