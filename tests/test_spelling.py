"""Methods as text and as slots: what parses, what combines, what is refused and in which words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.engine.cost import cost
from headway.errors import UserError
from headway.methods import broadcast, objective, server
from headway.methods.arguments import Among, Within, ranges
from headway.methods.catalogue import METHODS, MODIFIERS, Entry
from headway.methods.local import sgd
from headway.methods.method import SLOTS, Method, combine
from headway.methods.slots import Message, Output, State, Step, Uploads
from headway.methods.spelling import defaults, method
from headway.methods.wire import Wire, plain
from headway.vectors import Vector

ENTRIES = [*METHODS.values(), *MODIFIERS.values()]
OPTIONS = [(entry, option) for entry in ENTRIES for option in defaults(entry)]
NAMED = [f"{entry.name}.{option}" for entry, option in OPTIONS]
RANGED = [one for one in OPTIONS if isinstance(ranges(one[0].build).get(one[1]), Within)]
RANGED_NAMES = [f"{entry.name}.{option}" for entry, option in RANGED]


def spelled(entry: Entry, options: str = "") -> str:
    """A catalogue entry as text; a modifier stands after FedAvg."""
    return ("fedavg+" if entry.name in MODIFIERS else "") + entry.name + (f":{options}" if options else "")


def value_in(entry: Entry, option: str) -> Any:
    """An allowed value that is not the default."""
    default = defaults(entry)[option]
    if isinstance(default, bool):
        return not default
    allowed = ranges(entry.build)[option]
    if isinstance(allowed, Among):
        return next(word for word in allowed.words if word != default)
    value = 7 if isinstance(default, int) else next(one for one in (0.37, 1.37) if one in allowed)
    assert value in allowed
    assert default != value
    return value


class TestCatalogue:
    @pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
    def test_every_entry_parses_with_its_defaults(self, entry: Entry) -> None:
        found = method(spelled(entry))
        assert found == (combine(method("fedavg"), entry.build()) if entry.name in MODIFIERS else entry.build())
        assert found.name == spelled(entry)
        written = ",".join(f"{name}={value}" for name, value in defaults(entry).items() if value is not None)
        assert method(spelled(entry, written)) == found

    @pytest.mark.parametrize(("entry", "option"), OPTIONS, ids=NAMED)
    def test_every_option_is_read(self, entry: Entry, option: str) -> None:
        value = value_in(entry, option)
        found = method(spelled(entry, f"{option}={value}"))
        expected = entry.build(**{option: value})
        assert found == (combine(method("fedavg"), expected) if entry.name in MODIFIERS else expected)
        assert found != method(spelled(entry))

    @pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
    def test_every_argument_has_a_range_and_a_default_inside_it(self, entry: Entry) -> None:
        allowed = ranges(entry.build)
        ranged = {name: value for name, value in defaults(entry).items() if not isinstance(value, bool)}
        assert allowed.keys() == ranged.keys()
        assert all(value in allowed[name] for name, value in ranged.items() if value is not None)

    @pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
    def test_a_method_is_a_value(self, entry: Entry) -> None:
        assert entry.build() == entry.build()
        assert hash(entry.build()) == hash(entry.build())
        with pytest.raises(dataclasses.FrozenInstanceError):
            entry.build().server = None

    def test_known_spellings_in_slots(self) -> None:
        assert method("fedacg:lam=0.9,beta=0.001") == Method(
            broadcast=broadcast.lookahead(0.9), objective=objective.proximal(0.001), server=server.momentum(0.9)
        )
        assert method(" fedacg:lam=0.9 ") == method("fedacg:lam=0.9")
        assert method("fedavg").server == (server.average(1.0),)
        assert method("fedavg").wire == Wire(up=plain(), down=plain())

    def test_a_method_is_its_own_spelling(self) -> None:
        own = Method(server=server.momentum(0.5))
        assert method(own) is own


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("fedacgg", "there is no method 'fedacgg'; did you mean 'fedacg'?"),
            ("fedagc", "there is no method 'fedagc'; did you mean 'fedacg'?"),
            ("fedgam", "there is no method 'fedgam'; did you mean 'fedagm'?"),
            ("", "a method's name is missing"),
            ("fedavg+", "a method's name is missing"),
            ("acg", "'acg' is not a method by itself; put it after one: fedavg+acg"),
            ("prox:beta=1", "'prox' is not a method by itself; put it after one: fedavg+prox:beta=1"),
            ("fedavg+agc", "there is no method 'agc'; did you mean 'acg'?"),
            ("fedacg:lambda=0.9", "fedacg has no option 'lambda'; did you mean 'lam'? (its options: lam, beta, half)"),
            ("fedacg:lam", "fedacg: option 'lam' has no value; write lam=0.85"),
            ("fedacg:lam=", "fedacg: option 'lam' has no value; write lam=0.85"),
            ("fedacg:", "'fedacg:': an option is missing after its colon or comma; write fedacg or fedacg:lam=0.85"),
            ("csgd:", "'csgd:': an option is missing"),
            ("fedacg:lam=0.9,", "'fedacg:lam=0.9,': an option is missing"),
            ("fedprox+acg:", "'acg:': an option is missing"),
            ("fedacg:lam=high", "fedacg: lam is 'high'; it must be a number"),
            ("fedacg:lam=nan", "fedacg: lam is nan; allowed: 0 ≤ lam < 1"),
            ("fedprox:mu=inf", "fedprox: mu is inf; allowed: 0 ≤ mu"),
        ],
    )
    def test_the_message_says_what_to_write(self, text: str, words: str) -> None:
        with pytest.raises(UserError) as refusal:
            method(text)
        assert str(refusal.value).startswith(words)

    def test_an_option_given_twice_is_refused(self) -> None:
        with pytest.raises(UserError, match="lam"):
            method("fedacg:lam=0.5,lam=0.6")

    def test_an_exponent_with_a_plus_is_a_number(self) -> None:
        assert method("fedprox:mu=1e+1") == method("fedprox:mu=10")


SAME: list[tuple[str, str, str, Callable[[float], Any], list[float]]] = [
    ("fedacg", "lam", "lookahead", broadcast.lookahead, [1.0, 1.2, -0.1, float("nan")]),
    ("acg", "lam", "lookahead", broadcast.lookahead, [1.0, -0.1]),
    ("fedacg", "beta", "proximal", objective.proximal, [-0.1, float("inf")]),
    ("prox", "beta", "proximal", objective.proximal, [-0.1]),
    ("fedagm", "alpha", "task", objective.task, [-1.0]),
    ("fedagm", "server_rate", "interpolation", server.interpolation, [0.0, -1.0]),
    ("fedavg", "server_rate", "average", server.average, [0.0, -1.0]),
    ("fedavgm", "momentum", "momentum", server.momentum, [1.0, -0.1]),
    ("fedavgm", "server_rate", "momentum", lambda value: server.momentum(0.5, value), [0.0]),
]


class TestRanges:
    @pytest.mark.parametrize(("name", "option", "slot", "build", "values"), SAME)
    def test_slot_and_method_refuse_with_the_same_words(
        self, name: str, option: str, slot: str, build: Callable[[float], Any], values: list[float]
    ) -> None:
        entry = {**METHODS, **MODIFIERS}[name]
        for value in values:
            with pytest.raises(UserError) as at_slot:
                build(value)
            with pytest.raises(UserError) as at_method:
                method(spelled(entry, f"{option}={value}"))
            assert str(at_slot.value).startswith(f"{slot}: {option} is {value:g}; allowed: ")
            assert str(at_method.value) == str(at_slot.value).replace(f"{slot}: ", f"{name}: ", 1)

    @pytest.mark.parametrize(("entry", "option"), RANGED, ids=RANGED_NAMES)
    def test_every_argument_is_refused_outside_its_range(self, entry: Entry, option: str) -> None:
        allowed = ranges(entry.build)[option]
        outside = [allowed.low if allowed.open_left else allowed.low - 1]
        if allowed.high < float("inf"):
            outside.append(allowed.high if allowed.open_right else allowed.high + 1)
        for value in outside:
            with pytest.raises(UserError, match=f"^{entry.name}: {option} is "):
                method(spelled(entry, f"{option}={value}"))
            with pytest.raises(UserError, match=f" is {value:g}; allowed: "):
                entry.build(**{option: value})

    @pytest.mark.parametrize(("entry", "option"), RANGED, ids=RANGED_NAMES)
    def test_a_closed_end_is_allowed(self, entry: Entry, option: str) -> None:
        allowed = ranges(entry.build)[option]
        if not allowed.open_left:
            method(spelled(entry, f"{option}={allowed.low}"))
        assert allowed.open_left or allowed.low in allowed

    @pytest.mark.parametrize("value", ["0.5", True, None, torch.tensor(0.5)])
    def test_what_is_no_number_is_refused(self, value: Any) -> None:
        with pytest.raises(UserError, match=r"lookahead: lam is .*; it must be a number with 0 ≤ value < 1"):
            broadcast.lookahead(value)


class TestComposition:
    def test_fedprox_with_acceleration_is_fedacg(self) -> None:
        assert method("fedprox:mu=0.01+acg:lam=0.85") == method("fedacg:lam=0.85,beta=0.01")
        assert method("fedavg+acg+prox") == method("fedavg+prox+acg") == method("fedacg")
        assert method("fedavg+momentum:momentum=0.4") == method("fedavgm")
        assert method("fedprox+acg").name == "fedprox+acg"

    def test_spaces_around_a_plus_do_not_matter(self) -> None:
        assert method("fedprox + acg") == method("fedprox+acg")

    @pytest.mark.parametrize(("left", "right"), [("fedprox", "fedavgm"), ("fedavg", "fedacg"), ("fedprox", "fedavg")])
    def test_the_order_of_methods_that_share_no_slot_does_not_matter(self, left: str, right: str) -> None:
        assert method(f"{left}+{right}") == method(f"{right}+{left}")

    def test_fedavg_is_the_neutral_method(self) -> None:
        for name in METHODS:
            assert combine(method("fedavg"), method(name)) == method(name) == combine(method(name), method("fedavg"))

    def test_combining_three_does_not_depend_on_the_brackets(self) -> None:
        a, b, c = Method(objective=objective.proximal(0.1)), Method(server=server.momentum(0.5)), Method(local=shrink)
        assert combine(combine(a, b), c) == combine(a, combine(b, c))

    @pytest.mark.parametrize(
        ("text", "slot"),
        [
            ("fedavgm+acg", "server"),
            ("fedavg:server_rate=0.5+momentum", "server"),
            ("fedacg+fedagm", "server"),
            ("fedacg:lam=0.5+acg:lam=0.6", "broadcast"),
        ],
    )
    def test_two_bases_for_one_slot_are_refused_with_both_names(self, text: str, slot: str) -> None:
        left, right = text.split("+")
        with pytest.raises(UserError) as refusal:
            method(text)
        assert str(refusal.value).startswith(f"{left} + {right}: both set the {slot} slot, to ")

    def test_a_conflict_names_both_values(self) -> None:
        with pytest.raises(UserError) as refusal:
            method("fedavgm+acg")
        assert repr(server.momentum(0.4)) in str(refusal.value)
        assert repr(server.momentum(0.85)) in str(refusal.value)

    def test_equal_bases_do_not_conflict(self) -> None:
        assert method("fedavgm:momentum=0.85+acg") == Method(
            broadcast=broadcast.lookahead(0.85), server=server.momentum(0.85)
        )

    def test_two_codes_for_one_direction_are_refused(self) -> None:
        left, right = (Method(wire=Wire(up=halved(by)), name=f"half{by}") for by in (2, 4))
        with pytest.raises(UserError, match=r"half2 \+ half4: both set the wire slot up, to halved\(by=2\) and"):
            combine(left, right)
        assert combine(left, method("fedacg")).wire == combine(method("fedacg"), left).wire == Wire(up=halved(2))
        both = combine(left, Method(wire=Wire(down=halved(4))))
        assert both.wire == Wire(up=halved(2), down=halved(4))


class TestSlots:
    @pytest.mark.parametrize("base", [None, server.average(0.5)])
    def test_a_lookahead_without_momentum_is_refused_with_both_slots(self, base: Any) -> None:
        with pytest.raises(UserError) as refusal:
            Method(broadcast=broadcast.lookahead(0.9), server=base)
        message = str(refusal.value)
        assert message.startswith("broadcast slot: lookahead(lam=0.9) needs 'momentum' from the server slot")
        assert repr(base or server.average()) in message

    def test_a_vector_that_the_server_does_not_have_cannot_be_sent(self) -> None:
        with pytest.raises(UserError, match=r"broadcast slot: .*needs 'control' from the server slot"):
            Method(broadcast=broadcast.vector("control"))
        sent = Method(broadcast=broadcast.vector("momentum"), server=server.momentum(0.5))
        assert cost(sent).down == 2

    @pytest.mark.parametrize("second", [0.1, 0.2])
    def test_the_same_addition_twice_is_refused(self, second: float) -> None:
        with pytest.raises(UserError) as refusal:
            Method(objective=(objective.proximal(0.1), objective.proximal(second)))
        assert str(refusal.value) == (
            f"objective slot: proximal(beta=0.1, half=True) and proximal(beta={second}, half=True) "
            "are the same addition twice"
        )

    def test_two_additions_that_differ_only_in_strength_are_refused_in_a_composition(self) -> None:
        with pytest.raises(UserError, match="are the same addition twice"):
            method("fedprox:mu=0.1+prox:beta=0.2")

    def test_two_bases_in_one_slot_are_refused(self) -> None:
        with pytest.raises(UserError) as refusal:
            Method(server=(server.average(), server.momentum(0.5)))
        assert str(refusal.value).startswith("server slot: average(server_rate=1.0) and momentum(")

    @pytest.mark.parametrize("slot", SLOTS)
    @pytest.mark.parametrize("value", [7, "sgd", [sgd()], object])
    def test_what_is_no_slot_value_is_refused(self, slot: str, value: Any) -> None:
        with pytest.raises(UserError, match=f"^{slot} slot: "):
            Method(**{slot: value})

    def test_a_slot_value_in_the_wrong_slot_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"server slot: proximal\(beta=0.1, half=True\) has no update"):
            Method(server=objective.proximal(0.1))
        with pytest.raises(UserError, match=r"wire slot: .* is not a Wire"):
            Method(wire=plain())  # type: ignore[arg-type]

    def test_a_missing_base_is_fedavgs_and_stands_first(self) -> None:
        assert Method() == method("fedavg")
        mixed = Method(objective=(objective.proximal(0.1), objective.task(0.5)))
        assert mixed.objective == (objective.task(0.5), objective.proximal(0.1))
        assert [name for name, _ in mixed.parts("objective")] == ["objective.task", "objective.proximal"]


# ── a user's own slots ───────────────────────────────────────────────────────────────────────────────────────────────


def shrink(w: Vector, gradient: Vector, step: Any) -> Vector:
    return 0.5 * gradient


def ridge(w: Vector, output: Output, step: Any) -> Tensor:
    return w.dot(w)


def doubled(model: Vector, uploads: Uploads) -> Vector:
    return model + 2 * uploads.mean["delta"]


def shifted(model: Vector, state: Message) -> Message:
    return {"model": model + model}


@dataclasses.dataclass(frozen=True)
class counted:
    """A user's server that counts its rounds."""

    provides = ("server:rounds",)

    def server_state(self, model: Vector, population: int) -> State:
        return {"rounds": torch.zeros(())}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        return model + uploads.mean["delta"], {"rounds": state["rounds"] + 1}


@dataclasses.dataclass(frozen=True)
class decay:
    """A user's addition to the objective."""

    strength: float
    adds = True

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        return self.strength * w.norm()


@dataclasses.dataclass(frozen=True)
class halved:
    """A code that sends every second coordinate."""

    by: int

    def encode(self, vector: Vector, key: Tensor) -> Any:
        return vector.flat()[:: self.by]

    def decode(self, payload: Any, like: Vector) -> Vector:
        return like.unflat(payload.repeat_interleave(self.by))


W = Vector({"w": torch.tensor([1.0, 2.0])})
SENT = {"model": W}
UPLOADS = Uploads({"delta": W}, SENT, rate=0.1, share=1.0, clients=(0,), weights=(1.0,), population=1)
NOWHERE: Any = None


class TestOwnSlots:
    def test_plain_functions(self) -> None:
        own = Method(broadcast=shifted, objective=ridge, local=shrink, server=doubled)
        assert own.message(W, {})["model"].flat().tolist() == [2, 4]
        assert own.chain.direction(W, W, {}, NOWHERE)[0].flat().tolist() == [0.5, 1]
        assert own.update(W, UPLOADS, {})[0].flat().tolist() == [3, 6]
        (_, task), (_, term) = own.parts("objective")
        assert task == objective.task()
        assert term.value(W, NOWHERE, {}, NOWHERE) == 5
        assert [name for name, _ in own.parts("local", "server")] == ["local.shrink", "server.doubled"]
        assert own.server_state(W, 3) == own.client_state(W) == {}

    def test_plain_functions_compare_by_what_they_are(self) -> None:
        assert Method(local=shrink) == Method(local=shrink)
        assert Method(local=shrink) != Method(local=lambda w, gradient, step: gradient)
        assert repr(Method(local=shrink).local[0]) == "shrink"

    def test_a_function_joins_a_catalogue_method(self) -> None:
        own = combine(method("fedacg"), Method(objective=ridge, name="ridge"))
        assert [name for name, _ in own.parts("objective")] == [
            "objective.task",
            "objective.proximal",
            "objective.ridge",
        ]
        with pytest.raises(UserError, match=r"fedacg \+ mine: both set the server slot, to momentum\(.*\) and doubled"):
            combine(method("fedacg"), Method(server=doubled, name="mine"))

    def test_small_frozen_classes(self) -> None:
        own = Method(objective=(decay(0.1), objective.proximal(0.2)), server=counted())
        state = own.server_state(W, 5)
        assert list(state) == ["server.counted"]
        model, after = own.update(W, UPLOADS, state)
        assert model.flat().tolist() == [2, 4]
        assert after["server.counted"]["rounds"] == 1
        assert state["server.counted"]["rounds"] == 0
        assert [name for name, _ in own.parts("objective")][1:] == ["objective.decay", "objective.proximal"]

    def test_a_users_server_can_give_what_a_broadcast_needs(self) -> None:
        own = Method(broadcast=broadcast.vector("rounds"), server=counted())
        message = own.message(W, {"server.counted": {"rounds": W}})
        assert list(message) == ["model", "rounds"]

    def test_needs_of_the_model_are_gathered_and_not_refused(self) -> None:
        class looks_inside(decay):
            needs = ("model:stages", "model:full_gradient")

        assert Method(objective=looks_inside(1.0)).needs("model") == {"stages", "full_gradient"}
        assert method("fedacg").needs("model") == frozenset()
        assert not method("fedacg").needs_each


class TestCost:
    @pytest.mark.parametrize(
        ("name", "memory"), [("fedavg", 1), ("fedprox", 1), ("fedavgm", 2), ("fedacg", 2), ("fedagm", 2)]
    )
    def test_one_model_down_one_up_and_nothing_kept_by_clients(self, name: str, memory: int) -> None:
        found = cost(method(name))
        assert (found.down, found.up, found.client_state, found.server_memory) == (1, 1, 0, memory)

    def test_what_a_code_really_sends_is_counted(self) -> None:
        found = cost(Method(wire=Wire(up=halved(2))))
        assert (found.down, found.up) == (1, 0.5)
