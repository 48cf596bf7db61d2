"""What --json prints has one shape, for one run and for many, and is what its schema says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from command_line import called

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "numbers.schema.json").read_text(encoding="utf-8"))
LITTLE = "--model linear --rounds 2 --clients 10 --steps 1 --device cpu --executor serial --eval-samples 50 --quiet"
TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}


def problems(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """What is not as a schema says, for the words that this schema uses; another word is a failure of the test."""
    assert schema.keys() <= {"$schema", "$defs", "$ref", "title", "type", "properties", "required"} | {
        "additionalProperties",
        "anyOf",
        "enum",
        "items",
    }
    if "$ref" in schema:
        return problems(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], where)
    if "anyOf" in schema:
        every = [problems(value, one, where) for one in schema["anyOf"]]
        return [] if [] in every else every[0]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{where} is {value}"]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    allowed = tuple(kind for name in kinds for kind in TYPES[name])
    if not isinstance(value, allowed) or (isinstance(value, bool) and "boolean" not in kinds):
        return [f"{where} is {value!r}, not {kinds}"]
    found: list[str] = []
    if isinstance(value, list):
        found += [one for at, part in enumerate(value) for one in problems(part, schema["items"], f"{where}[{at}]")]
    if isinstance(value, dict):
        found += [f"{where} has no {name}" for name in schema["required"] if name not in value]
        for name, part in value.items():
            inner = schema["properties"].get(name, schema["additionalProperties"])
            found += [f"{where} has {name}"] if inner is False else problems(part, inner, f"{where}.{name}")
    return found


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("json")
    commands = {
        "one run": f"run fedacg {LITTLE} --json --out one",
        "two seeds": f"run fedacg {LITTLE} --json --seeds 2 --out two",
        "a comparison": f"compare fedavg fedacg {LITTLE} --json --target 0.1 --out three",
        "another task": f"run fedavg {LITTLE} --json --metrics top3,accuracy --client-test 0.2 --out four",
        "private": f"run fedavg+dp:clip=1,noise=1 {LITTLE} --json --epsilon 50 --weights uniform --out five",
        "resumed": "resume one --json --quiet",
        "resumed comparison": "resume three --json --quiet",
        "reported": "report one --json --out told",
    }
    answers = {name: called(place, command) for name, command in commands.items()}
    assert {name: answer.stderr for name, answer in answers.items() if answer.returncode} == {}
    return {name: json.loads(answer.stdout) for name, answer in answers.items()}


def test_every_document_is_as_the_schema_says(printed: dict[str, Any]) -> None:
    assert {name: problems(content, SCHEMA) for name, content in printed.items()} == {key: [] for key in printed}


def test_the_schema_refuses_other_documents(printed: dict[str, Any]) -> None:
    content = printed["one run"]
    for other in (
        content["methods"],
        {**content, "more": 1},
        {**content, "runs": [{**content["runs"][0], "seed": "zero"}]},
        {**content, "methods": [{key: part for key, part in content["methods"][0].items() if key != "seeds"}]},
    ):
        assert problems(other, SCHEMA)


def test_one_seed_has_the_keys_of_many(printed: dict[str, Any]) -> None:
    one, two = printed["one run"], printed["two seeds"]
    assert one.keys() == two.keys()
    assert one["methods"][0].keys() == two["methods"][0].keys()
    assert one["runs"][0].keys() == two["runs"][0].keys()
    assert [len(content["runs"]) for content in (one, two)] == [1, 2]
    assert [content["methods"][0]["seeds"] for content in (one, two)] == [1, 2]


def test_a_run_that_is_loaded_prints_what_it_printed(printed: dict[str, Any]) -> None:
    assert printed["resumed"] == printed["one run"] == printed["reported"]
    again, first = printed["resumed comparison"], printed["a comparison"]
    assert again == first


def test_the_schema_in_the_documentation_is_the_one_of_the_program() -> None:
    maker = runpy.run_path(str(ROOT / "docs" / "site" / "json_schema.py"))
    assert maker["FILE"].read_text(encoding="utf-8") == maker["text"]()
