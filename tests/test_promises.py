"""Each promise of the README's "What can be relied on" has tests, and these are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import headway as hw
from conftest import SMALL, batch_norm_dropout, unequal_clients
from headway.random import built

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TESTED = {
    "Executors (serial, batched, pool) agree to 1e-10 in float64": (
        "executors::test_float64_agrees_over_several_rounds",
        "executors::test_every_way_of_local_training_agrees",
        "coupling::test_every_method_agrees_in_every_executor_where_samples_are_coupled",
    ),
    "graphed needs a GPU: the tests have its logic without one": (
        "graphed::test_every_method_is_serial_s",
        "graphed::test_rounds_of_all_kinds_are_serial_s",
    ),
    "A run killed at any moment and resumed gives the uninterrupted run's numbers": (
        "resume::test_ten_kills_change_nothing",
        "resume::test_a_kill_at_any_call_changes_nothing",
        "resume::test_a_kill_while_resuming_changes_nothing",
    ),
    "It is saved after every round, or, where that would take more than a twentieth of the time, less often": (
        "checkpoint_frequency::test_saving_takes_a_twentieth_of_the_time",
        "checkpoint_frequency::test_a_run_saves_as_its_pace_says",
        "checkpoint_frequency::test_rounds_between_checkpoints_do_not_depend_on_the_clock",
    ),
    "A run is resumed only with the data, own model and own method that it began with, or with --accept-changes": (
        "fingerprints::test_other_own_data_is_refused_and_nothing_changes",
        "fingerprints::test_another_own_model_of_equal_shapes_is_refused",
        "fingerprints::test_another_body_under_the_same_name_is_refused",
        "fingerprints::test_what_is_meant_goes_on_and_is_recorded",
    ),
    "Every file of a run folder is checked when it is read": (
        "damaged_folders::test_damage_is_one_line_or_changes_nothing",
        "resume::test_a_damaged_run_is_refused_and_left_as_it_is",
        "resume::test_one_flipped_bit_is_refused_or_harmless",
    ),
    "Layers that look across a batch never see filler rows": (
        "coupling::test_a_network_that_couples_samples_ends_as_in_a_plain_loop",
        "coupling::test_only_clients_with_batches_of_equal_sizes_are_stacked",
        "coupling::test_a_captured_executor_is_refused",
    ),
    "Bytes are counted from the messages that are really sent": (
        "contracts::test_counted_bytes_are_the_cost_times_the_model",
        "quantised::test_counted_bytes_are_the_bytes_of_the_payload",
    ),
    "All randomness is a function of (seed, purpose, round, client, step, element)": (
        "random::test_no_other_file_draws_or_seeds",
        "random::test_what_ran_before_has_no_effect",
        "random::test_an_element_does_not_depend_on_the_shape",
        "contracts::test_the_same_seed_gives_the_same_bits_and_another_does_not",
    ),
    "BatchNorm statistics follow a stated policy (--buffers average | keep-local | refuse), recorded in the result": (
        "executors::test_local_statistics_stay_with_their_client",
        "models::test_batch_statistics_can_be_refused",
        "coupling::test_a_network_that_couples_samples_ends_as_in_a_plain_loop",
        "promises::test_the_policy_for_statistics_is_recorded_and_followed",
    ),
}
"""The beginning of each sentence that promises something, and the tests of it as FILE::TEST."""
BESIDE = ("what was compared on one",)
"""Sentences that report and promise nothing."""


def sentences() -> list[str]:
    """The sentences of the section, without marks, links and line breaks."""
    section = README.partition("## What can be relied on\n")[2].partition("\nTo cite Headway")[0]
    found = []
    for point in re.split(r"^\* ", section, flags=re.MULTILINE)[1:]:
        text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(point.split())).replace("`", "")
        found += [sentence for sentence in re.split(r"(?<=[.)])\s+(?=[A-Z]|graphed)", text) if sentence]
    return found


def defined(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / f"test_{file}.py").read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_is_listed_and_every_listed_one_is_made() -> None:
    said = [sentence for sentence in sentences() if not sentence.startswith(BESIDE)]
    assert len(said) >= 10
    for sentence in said:
        assert sum(part in sentence for part in TESTED) == 1, sentence
    assert all(any(part in sentence for sentence in said) for part in TESTED)


@pytest.mark.parametrize("promise", TESTED)
def test_the_tests_of_a_promise_are_there(promise: str) -> None:
    for name in TESTED[promise]:
        file, _, test = name.partition("::")
        assert test in defined(file), name


@pytest.mark.parametrize("policy", ["average", "keep-local"])
def test_the_policy_for_statistics_is_recorded_and_followed(policy: str, tmp_path: Path) -> None:
    """The server's statistics are its clients' mean, or stay those of the beginning."""
    model = built(batch_norm_dropout, 7, "test")
    own = {"model": model, **unequal_clients()}
    hw.simulate("fedavg", SMALL.changed(rounds=1, executor="serial", buffers=policy), out=tmp_path / "run", **own)
    run = hw.load_run(tmp_path / "run", **own)
    assert run.scenario.buffers == policy
    assert f'buffers = "{policy}"' in (tmp_path / "run" / "scenario.toml").read_text(encoding="utf-8")
    began, ended = (
        next(one for one in whole.modules() if isinstance(one, nn.BatchNorm1d)) for whole in (model, run.model)
    )
    if policy == "average":
        assert not torch.equal(ended.running_mean.double(), began.running_mean.double())
    else:
        assert ended.running_mean is None
