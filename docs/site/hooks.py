"""What the site has beside the files in `docs`: made when it is built, so that no page repeats what the code says.

* Files that pages link to outside `docs` (sources, tests, tables of results) become pages, or files.
* Notebooks become Markdown.
* The reference of the command line and of the settings is written from the commands and from the scenario.
* The navigation gets a line for each method and for each decision.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import re
from pathlib import Path
from typing import Any

import click
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from headway.cli.main import app
from headway.methods.arguments import ranges
from headway.methods.catalogue import METHODS
from headway.scenario import Scenario, explained, field_type

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAMED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "readme.md"}
"""Pages of the repository's root, and what they are called here."""
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".cff": "yaml", ".yaml": "yaml"}
LINK = re.compile(r"(?<!\\)(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation's lines for methods and decisions."""
    for entry in config.nav or []:
        if "Methods" in entry:
            entry["Methods"] += [{name: f"methods/{name}.md"} for name in METHODS]
        for part in entry.get("Explanation", []):
            if "Decisions" in part:
                part["Decisions"] = [f"decisions/{path.name}" for path in sorted((DOCS / "decisions").glob("*.md"))]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Every page that is not a file in `docs`."""
    made = {f"notebooks/{path.stem}.md": _notebook(path) for path in sorted((DOCS / "notebooks").glob("*.ipynb"))}
    made |= {"reference/command_line.md": _command_line(), "reference/settings.md": _settings()}
    made |= {"reference/slots.md": _slots()}
    for address, text in made.items():
        files.append(File.generated(config, address, content=text))
    _add_linked(files, config)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are in the repository become links within the site."""
    here = _origin(page.file.src_uri)

    def within(match: re.Match[str]) -> str:
        target = _target(here, match[2])
        if target is None:
            return match[0]
        address = os.path.relpath(_address(target), Path(page.file.src_uri).parent).replace(os.sep, "/")
        return f"{match[1]}({address}{match[3] or ''})"

    return _outside_code(markdown, lambda text: LINK.sub(within, text))


# Files of the repository that pages link to.


def _add_linked(files: Files, config: MkDocsConfig) -> None:
    waiting = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md"))]
    added: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if not path.is_relative_to(DOCS) and path not in added:
            added.add(path)
            files.append(_as_file(path, config))
        if path.suffix == ".md":
            for match in LINK.finditer(_without_code(path.read_text(encoding="utf-8"))):
                target = _target(path, match[2])
                if target is not None and not target.is_relative_to(DOCS) and target not in added:
                    waiting.append(target)


def _as_file(path: Path, config: MkDocsConfig) -> File:
    """A page with the file's text; a folder's page lists what is in it; a picture stays as it is."""
    address, title = _address(path), path.relative_to(ROOT).as_posix()
    if path.is_dir():
        inside = sorted(each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file())
        text = f"# {title}\n\nIn this folder:\n\n```text\n" + "\n".join(inside) + "\n```\n"
    elif path.suffix == ".md":
        text = path.read_text(encoding="utf-8")
    elif path.suffix in LANGUAGES or path.name == "Makefile":
        language = LANGUAGES.get(path.suffix, "make")
        text = f"# {path.name}\n\n`{title}`\n\n````{language}\n{path.read_text(encoding='utf-8')}````\n"
    else:
        return File.generated(config, address, abs_src_path=str(path))
    if path.suffix != ".md":
        text = "---\nsearch:\n  exclude: true\n---\n\n" + text
    return File.generated(config, address, content=text)


def _address(path: Path) -> str:
    """Where a file of the repository lies within the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix().replace(".ipynb", ".md")
    name = path.relative_to(ROOT).as_posix()
    if name in NAMED:
        return NAMED[name]
    page = path.is_dir() or path.suffix in LANGUAGES or path.name == "Makefile"
    return f"source/{name}.md" if page else f"source/{name}"


def _origin(address: str) -> Path:
    """The file of the repository that a page was made of; the opposite of `_address`."""
    for name, renamed in NAMED.items():
        if address == renamed:
            return ROOT / name
    if address.startswith("source/"):
        return ROOT / address.removeprefix("source/")
    return DOCS / address


def _target(here: Path, link: str) -> Path | None:
    """The file that a link of a page leads to; None where it leads out of the repository, or to nothing."""
    if re.match(r"[a-z]+:", link):
        return None
    found = (here.parent / link).resolve()
    return found if found.exists() and found.is_relative_to(ROOT) else None


def _outside_code(text: str, change: Any) -> str:
    """The text, changed wherever it is not in a block of code."""
    pieces = re.split(r"(^(?P<fence>`{3,}).*?^(?P=fence)$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(change(piece) if place % 3 == 0 else piece for place, piece in enumerate(pieces) if place % 3 != 2)


def _without_code(text: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


# Pages made of code.


def _notebook(path: Path) -> str:
    """A notebook's text, its code in blocks and its kept outputs below them."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", []):
            shown = "".join(output.get("text", output.get("data", {}).get("text/plain", [])))
            parts.append(f'```text title="output"\n{shown.rstrip()}\n```')
    parts.append(f"This page is a notebook, `docs/notebooks/{path.name}`. Its code runs in the tests.")
    return "\n\n".join(parts) + "\n"


def _command_line() -> str:
    """Every command with its arguments and flags, as `--help` says them."""
    group: Any = typer.main.get_command(app)
    parts = [
        "# Command line",
        "Made from the commands themselves; `headway COMMAND --help` prints the same. The settings of a scenario, "
        "which `run`, `compare`, `sweep` and `scenario` take as flags, are on [their own page](settings.md).",
    ]
    for name, command in sorted(group.commands.items()):
        inner = getattr(command, "commands", None)
        for full, one in [(f"{name} {sub}", each) for sub, each in inner.items()] if inner else [(name, command)]:
            parts += [f"## headway {full}", (one.help or "").strip(), *_parameters(one)]
    return "\n\n".join(parts) + "\n"


def _parameters(command: click.Command) -> list[str]:
    fields = {field.name for field in dataclasses.fields(Scenario)}
    flags = {one.name for one in command.params if one.param_type_name == "option"}
    shared = fields - flags <= {"method"}
    rows = []
    for one in command.params:
        if one.name == "help" or (shared and one.name in fields & flags):
            continue
        spelled = ", ".join(f"`{text}`" for text in one.opts + one.secondary_opts)
        if one.param_type_name == "argument":
            spelled = f"`{str(one.name).upper()}`"
        rows.append(f"| {spelled} | {_cell(getattr(one, 'help', None) or '')} |")
    table = ["| argument or flag | meaning |\n|---|---|\n" + "\n".join(rows)] if rows else []
    return [*table, *(["And every [setting](settings.md) of a scenario."] if shared else [])]


def _settings() -> str:
    """Every setting of a scenario by group, with its default and what is allowed."""
    parts = [
        "# Settings",
        "A scenario is a record of these settings: in TOML by name, on the command line as a flag (`--batch-size`), in "
        "Python as an argument. `headway scenario NAME` prints one, complete and explained.",
    ]
    groups: dict[str, list[str]] = {}
    for field in dataclasses.fields(Scenario):
        kind, _ = field_type(field.name)
        default = "–" if field.default is None else f"`{str(field.default).lower() if kind is bool else field.default}`"
        row = f"| `{field.name}` | {default} | {_cell(explained(field))} |"
        groups.setdefault(str(field.metadata["group"]), []).append(row)
    for group, rows in groups.items():
        parts += [f"## {group.capitalize()}", "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _slots() -> str:
    """Every value of the catalogue's slots, and the hooks that a value may have."""
    parts = ["# Parts of methods", "The values that a slot can have, and the hooks that a value of your own may have."]
    for slot in ("broadcast", "objective", "local", "server", "wire"):
        package = importlib.import_module(f"headway.methods.{slot}")
        parts += [f"## {slot}", f"{package.__doc__} In Python `hw.{slot}.NAME`."]
        for name in package.__all__:
            value = getattr(package, name)
            limits = ", ".join(str(limit).replace("value", which) for which, limit in ranges(value).items())
            text = re.sub(r"^([+*-]) ", r"\\\1 ", inspect.getdoc(value) or "")
            parts += [
                f"### {name}",
                f"```python\n{name}{_signature(value)}{f'  # {limits}' if limits else ''}\n```",
                text,
            ]
    whole = "    options:\n      show_root_heading: false\n      heading_level: 3\n      show_bases: false"
    parts += ["## Hooks", f"::: headway.methods.hooks\n{whole}\n      filters: ['^[A-Z][a-z]', '^[a-z]']"]
    parts += ["## What hooks are given", f"::: headway.methods.slots\n{whole}"]
    return "\n\n".join(parts) + "\n"


def _signature(value: Any) -> str:
    """Names and defaults of what a slot value is made with."""
    given = inspect.signature(value).parameters.values()
    return f"({', '.join(str(one.replace(annotation=inspect.Parameter.empty)) for one in given)})"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
