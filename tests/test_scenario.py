"""A scenario says what is run: it survives TOML, refuses what cannot be meant, and has a short name."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import UserError
from headway.scenario import ROLES, Scenario, field_type, from_name, from_toml, scenario, settings_of

quick = settings(deadline=None, max_examples=60)

FIELDS = {field.name: field for field in dataclasses.fields(Scenario)}
TEXT = st.text(st.one_of(st.characters(exclude_categories=("Cs", "Cc")), st.sampled_from('"\\\t#=[')), max_size=12)


def values(name: str) -> st.SearchStrategy[Any]:
    """Every value a setting allows."""
    kind, optional = field_type(name)
    limits = FIELDS[name].metadata
    if name == "device":
        return st.sampled_from(["auto", "cpu", "cuda", "cuda:0", "cuda:17"])
    if name == "stop_at_target":
        return st.just(False)
    if name == "schedule":
        return st.sampled_from(["exponential", "exponential:over=steps,warmup=0.5", "constant", "step:every=2"])
    if "among" in limits:
        return st.sampled_from(limits["among"])
    found: st.SearchStrategy[Any]
    if kind is bool:
        found = st.booleans()
    elif kind is int:
        found = st.integers(limits.get("least"), limits.get("most", 10**9))
    elif kind is float:
        low, high = limits.get("least", limits.get("above")), limits.get("most", limits.get("below"))
        found = st.floats(
            low,
            high,
            allow_nan=False,
            allow_infinity=False,
            exclude_min="above" in limits,
            exclude_max="below" in limits,
        )
    else:
        found = TEXT
    return st.none() | found if optional else found


def possible(given: dict[str, Any]) -> Scenario:
    """Settings as a scenario: a share and a number of clients exclude each other, an accuracy is at most 1, and a decay
    is of the exponential schedule."""
    if given["participation"] is not None:
        given = given | {"cohort_size": None}
    if given["task"] in ("auto", "classification") and not given["metrics"] and given["target"] is not None:
        given = given | {"target": min(given["target"], 1.0)}
    if not given["schedule"].startswith("exponential"):
        given = given | {"rate_decay": 1.0}
    return Scenario(**given)


SCENARIOS = st.fixed_dictionaries({name: values(name) for name in FIELDS}).map(possible)


class TestToml:
    @quick
    @given(SCENARIOS)
    def test_a_scenario_survives_toml(self, given: Scenario) -> None:
        assert from_toml(given.as_toml(), "a test") == given

    @quick
    @given(SCENARIOS)
    def test_what_is_written_is_what_is_set(self, given: Scenario) -> None:
        assert tomllib.loads(given.as_toml()) == given.as_dict()
        assert Scenario(**given.as_dict()) == given
        assert None not in given.as_dict().values()

    @pytest.mark.parametrize("text", ["two\nlines", "a\rb", "bell\x07", "\x00", "delete\x7f", "tab\t"])
    def test_control_characters_survive_toml(self, text: str) -> None:
        given = Scenario(data_dir=text)
        assert from_toml(given.as_toml(), "a test") == given

    @pytest.mark.parametrize("value", [np.float64(0.25), 1])
    def test_every_kind_of_number_that_is_taken_survives_toml(self, value: Any) -> None:
        given = Scenario(rate=value)
        assert from_toml(given.as_toml(), "a test") == given

    def test_every_field_is_written_under_its_group(self) -> None:
        lines = Scenario().as_toml().splitlines()
        assert [line for line in lines if line.startswith("# ") and "=" not in line] == [
            "# run",
            "# data",
            "# stragglers",
            "# model",
            "# training",
            "# watching",
            "# privacy",
            "# execution",
        ]
        assert [line.removeprefix("# ").split(" =")[0] for line in lines if "=" in line] == list(FIELDS)

    def test_a_file_a_folder_and_changed_settings(self, tmp_path: Path) -> None:
        given = Scenario(rounds=7, method="fedacg:lam=0.9")
        (tmp_path / "scenario.toml").write_text(given.as_toml(), encoding="utf-8")
        assert scenario(tmp_path / "scenario.toml") == given
        assert scenario(str(tmp_path)) == given
        assert scenario(tmp_path, rounds=9) == given.changed(rounds=9)

    def test_faults_name_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.toml"
        with pytest.raises(UserError, match=r"there is no scenario file .*mine\.toml"):
            scenario(file)
        file.write_text("rounds = \n")
        with pytest.raises(UserError, match=r"mine\.toml is not valid TOML"):
            scenario(file)
        file.write_text("round = 5\n")
        with pytest.raises(UserError, match=r"mine\.toml: a scenario has no setting 'round'; did you mean 'rounds'\?"):
            scenario(file)
        file.write_text("rounds = 0\n")
        with pytest.raises(UserError, match=r"mine\.toml: rounds is 0; it must be at least 1"):
            scenario(file)

    @pytest.mark.parametrize("key", ["self", "settings", "source", "cls", "''"])
    def test_every_unknown_key_of_a_file_is_refused_by_its_name(self, key: str) -> None:
        with pytest.raises(UserError, match=f"mine.toml: a scenario has no setting '{key.strip(chr(39))}'"):
            from_toml(f"{key} = 1\n", "mine.toml")


def outside() -> list[tuple[str, Any, str]]:
    """(field, value, words of the refusal) for every limit there is."""
    found: list[tuple[str, Any, str]] = []
    for name, field in FIELDS.items():
        limits = field.metadata
        for limit, words in (("least", "at least"), ("most", "at most"), ("above", "above"), ("below", "below")):
            if limit in limits:
                bound = limits[limit]
                step = 1 if field_type(name)[0] is int else 1e-9 * max(abs(bound), 1)
                beyond = {"least": bound - step, "most": bound + step}.get(limit, bound)
                found.append((name, beyond, f"{words} {bound}"))
        if "among" in limits:
            found.append((name, "nonsense", f"allowed: {', '.join(limits['among'])}"))
        if field_type(name)[0] is float:
            found += [(name, value, "a finite number") for value in (math.nan, math.inf, -math.inf)]
    return found


WRONG: dict[type, list[Any]] = {
    int: [1.0, "1", True, [1], {}],
    float: ["0.5", True, [0.5]],
    str: [1, 0.5, True, ["iid"]],
    bool: [1, "true", 0.0],
}


class TestLimits:
    @pytest.mark.parametrize(("name", "value", "words"), outside())
    def test_every_limit_is_refused_with_the_fields_name(self, name: str, value: Any, words: str) -> None:
        with pytest.raises(UserError) as refusal:
            Scenario(**{name: value})
        assert str(refusal.value).startswith(f"{name} is ")
        assert words in str(refusal.value)

    def test_no_limited_field_is_forgotten(self) -> None:
        limited = {
            "seed",
            "seeds",
            "clients",
            "participation",
            "rounds",
            "epochs",
            "steps",
            "batch_size",
            "rate",
            "clip",
        }
        limited |= {
            "rate_decay",
            "weight_decay",
            "target",
            "smoothing",
            "eval_every",
            "weights",
            "batches",
            "precision",
        }
        assert limited <= {name for name, _, _ in outside()}

    @pytest.mark.parametrize("name", [name for name in FIELDS if {"least", "most"} & FIELDS[name].metadata.keys()])
    def test_a_closed_limit_itself_is_allowed(self, name: str) -> None:
        for limit in ("least", "most"):
            if limit in FIELDS[name].metadata:
                bound = FIELDS[name].metadata[limit]
                assert getattr(Scenario(**{name: bound}), name) == bound

    @pytest.mark.parametrize("name", FIELDS)
    def test_another_type_is_refused_with_the_fields_name(self, name: str) -> None:
        kind, optional = field_type(name)
        for value in WRONG[kind] + ([] if optional else [None]):
            with pytest.raises(UserError, match=f"^{name} is .*of type {kind.__name__}"):
                Scenario(**{name: value})

    def test_a_whole_number_is_a_number(self) -> None:
        assert Scenario(clip=5).clip == 5.0
        assert isinstance(Scenario(clip=5).clip, float)

    def test_a_whole_number_beyond_every_float_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"^rate is "):
            Scenario(rate=10**400)

    @pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpu:0", "", "cuda:1 "])
    def test_a_device_that_is_none_is_refused(self, device: str) -> None:
        with pytest.raises(UserError, match=r"^device is .*allowed: auto, cpu, cuda or cuda:N"):
            Scenario(device=device)

    def test_stopping_at_a_target_needs_one(self) -> None:
        with pytest.raises(UserError, match="stop_at_target needs a target"):
            Scenario(stop_at_target=True)
        assert Scenario(stop_at_target=True, target=0.8).stop_at_target

    def test_the_nearest_allowed_word_is_offered(self) -> None:
        with pytest.raises(UserError, match=r"executor is 'batch'; allowed: .*; did you mean 'batched'\?"):
            Scenario(executor="batch")


class TestChanged:
    @quick
    @given(SCENARIOS, st.integers(1, 500))
    def test_only_what_is_named_changes(self, given: Scenario, rounds: int) -> None:
        after = given.changed(rounds=rounds)
        assert after.rounds == rounds
        assert dataclasses.replace(after, rounds=given.rounds) == given

    @pytest.mark.parametrize(
        ("name", "nearest"), [("round", "rounds"), ("client", "clients"), ("batchsize", "batch_size"), ("colour", None)]
    )
    def test_an_unknown_setting_is_refused_with_the_nearest_name(self, name: str, nearest: str | None) -> None:
        with pytest.raises(UserError) as refusal:
            Scenario().changed(**{name: 1})
        ending = f"; did you mean '{nearest}'?" if nearest else ""
        assert str(refusal.value) == f"a scenario has no setting '{name}'{ending}"
        with pytest.raises(UserError, match=f"no setting '{name}'"):
            scenario("fashion/iid/60x6", **{name: 1})

    def test_a_changed_value_is_checked_as_a_new_one(self) -> None:
        with pytest.raises(UserError, match=r"participation is 1\.5; it must be at most 1\.0"):
            Scenario().changed(participation=1.5)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "partition", "clients", "cohort"),
        [
            ("fashion/dir0.3/60x10%", "dirichlet:0.3", 60, 6),
            ("fashion/iid/60x6", "iid", 60, 6),
            ("mnist/dir0.6/100x5%", "dirichlet:0.6", 100, 5),
            ("mnist/dir1/500x2%", "dirichlet:1", 500, 10),
            ("my-data_2/iid/7x100%", "iid", 7, 7),
            ("fashion/iid/1000x0.5%", "iid", 1000, 5),
        ],
    )
    def test_a_name_says_data_split_and_who_takes_part(
        self, name: str, partition: str, clients: int, cohort: int
    ) -> None:
        found = scenario(name)
        assert (found.data, found.partition, found.clients) == (name.split("/")[0], partition, clients)
        assert found.cohort == cohort

    @quick
    @given(st.integers(1, 3000), st.data())
    def test_a_number_of_clients_is_exactly_that_many(self, clients: int, data: st.DataObject) -> None:
        taking = data.draw(st.integers(1, clients))
        assert from_name(f"fashion/iid/{clients}x{taking}").cohort == taking

    @pytest.mark.parametrize(
        "name",
        [
            "fashion",
            "fashion/iid",
            "fashion/dir/60x6",
            "fashion/iid/60",
            "fashion/iid/60x",
            "x y",
        ],
    )
    def test_what_is_no_name_is_refused_with_an_example(self, name: str) -> None:
        with pytest.raises(UserError, match=f"'{name}', and it is not a name such as fashion/dir0.3/60x10%"):
            scenario(name)

    @pytest.mark.parametrize("name", ["fashion/iid/60x1.2.3", "fashion/iid/60x.%", "fashion/iid/60x."])
    def test_a_number_with_too_many_points_is_refused(self, name: str) -> None:
        with pytest.raises(UserError):
            scenario(name)

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("fashion/iid/0x5", "5 of 0 clients cannot take part"),
            ("fashion/iid/60x61", "61 of 60 clients cannot take part"),
            ("fashion/iid/60x0", "^cohort_size is "),
            ("fashion/iid/60x6.5", "6.5 clients cannot take part; write a whole number"),
        ],
    )
    def test_numbers_that_cannot_be_are_refused(self, name: str, words: str) -> None:
        with pytest.raises(UserError, match=words):
            scenario(name)

    def test_a_share_and_a_number_of_clients_exclude_each_other(self) -> None:
        with pytest.raises(UserError, match="participation and cohort_size are both given"):
            Scenario(participation=0.2, cohort_size=5)
        assert scenario("fashion/iid/10x5", clients=20).cohort == 5
        assert scenario("fashion/iid/10x5", participation=0.2).cohort == 2

    def test_nothing_is_the_default(self) -> None:
        assert scenario() == Scenario()
        assert scenario(rounds=3) == Scenario(rounds=3)
        assert scenario(Scenario(rounds=4), seed=2) == Scenario(rounds=4, seed=2)


class TestRoles:
    def test_every_setting_has_one_role(self) -> None:
        sets = [settings_of(role) for role in ROLES]
        assert sum(map(len, sets)) == len(FIELDS)
        assert frozenset().union(*sets) == FIELDS.keys() == settings_of(*ROLES)
        assert all(sets)
        assert settings_of() == frozenset()

    def test_who_a_run_is_and_where_it_is_executed(self) -> None:
        assert settings_of("identity") == {"method", "seed", "seeds"}
        places = {"device", "executor", "data_dir"}
        assert settings_of("execution") == places | {
            "deterministic",
            "client_state_mb",
            "checkpoint_every",
            "keep_best",
            "keep_checkpoints",
        }
        assert {"precision", "augmentation", "rounds", "rate"} <= settings_of("training")
        assert {"data", "partition", "participation", "sampling", "dropout", "loss"} <= settings_of("problem")

    def test_another_role_is_refused(self) -> None:
        with pytest.raises(AssertionError, match="unknown roles"):
            settings_of("free")


class TestCohort:
    @pytest.mark.parametrize(
        ("clients", "participation", "cohort"),
        [(100, 0.29, 29), (100, 0.57, 57), (60, 0.1, 6), (500, 0.02, 10), (10, 0.05, 1), (7, 1.0, 7), (9, 0.5, 4)],
    )
    def test_known_sizes(self, clients: int, participation: float, cohort: int) -> None:
        assert Scenario(clients=clients, participation=participation).cohort == cohort

    @quick
    @given(st.integers(1, 10_000), st.integers(1, 100))
    def test_a_whole_percentage_is_rounded_down_exactly(self, clients: int, percent: int) -> None:
        assert Scenario(clients=clients, participation=percent / 100).cohort == max(clients * percent // 100, 1)

    @quick
    @given(st.integers(1, 10_000), st.floats(0, 1, exclude_min=True))
    def test_somebody_takes_part_and_nobody_twice(self, clients: int, participation: float) -> None:
        assert 1 <= Scenario(clients=clients, participation=participation).cohort <= clients
