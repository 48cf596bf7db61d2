"""Which samples go to which client: the table `PARTITIONS`, and the function behind each of its lines.

Every split is fixed by its own seed and disjoint; the one exception says `repeats` in its line. A new one is a function
`f(labels, clients, seed[, argument])` and a line in the table, from which errors, `headway data partitions`, scenarios
by name and the tests take it. It draws from `generator(seed, "split/NAME")`, and refuses what it cannot split with a
`UserError` of one sentence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from headway.data.grouping import Grouping, owners
from headway.data.own_split import OWN, Rows, SplitFunction, from_file, from_function
from headway.errors import UserError, nearest
from headway.random import generator, legacy_mixes

MOST = 1e100
"""The largest concentration; far beyond it the sums of the draws are not finite."""
MOST_DRAWS = 5_000_000_000
"""The most numbers that a split draws which needs one for each client and free sample: about two minutes on one core.
The draws follow each other, so none can be left out without changing the split."""
_NO_GROUPINGS: Mapping[str, Grouping] = MappingProxyType({})


@dataclass(frozen=True)
class Number:
    """The number after a partition's colon: above 0 and at most `MOST`."""

    name: str
    example: str
    whole: bool = False

    def read(self, spelled: str) -> float:
        """The number in `dirichlet:0.3`, or a `UserError` that says how it is written."""
        name, _, text = spelled.partition(":")
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            value = 0
        if not 0 < value <= MOST:
            raise UserError(
                f"partition is '{spelled}'; write {name}:{self.name} with {self.name} above 0, "
                f"such as {name}:{self.example}"
            )
        return value


@dataclass(frozen=True)
class Partition:
    """A line of the table."""

    rule: Callable[..., Rows]
    """`rule(labels, clients, seed)` gives the rows of each client. An argument after the colon is its fourth parameter;
    where `by_user`, `users` is the natural user of each sample."""
    help: str
    """What it does, in one line."""
    argument: Number | str | None = None
    """What stands after the colon: a number, a text of this name, or nothing."""
    by_class: bool = False
    """Whether it needs targets that are classes."""
    by_user: bool = False
    """Whether it needs data whose samples belong to users. What stands after its colon is then one of the groupings of
    the data, and may be left out."""
    one_by_one: bool = False
    """Whether it draws one number for each client and free sample, so that their number is limited."""
    counts_clients: bool = False
    """Whether it says itself how many clients there are: `clients` may then be 0, which stands for all of them. It then
    stands in `COUNTING_PARTITIONS` of `scenario.py` too."""
    repeats: bool = False
    """Whether a sample may be in several clients' data, or in one client's more than once: the exception. Samples are
    then not held out of it, as a copy of one that is held out could be trained on."""

    def spelled(self, name: str) -> str:
        """`dirichlet:ALPHA`."""
        argument = self.argument.name if isinstance(self.argument, Number) else self.argument
        return f"{name}:{argument}" if argument else name


def split(
    how: str | SplitFunction,
    labels: np.ndarray,
    clients: int,
    seed: int,
    users: np.ndarray | None = None,
    groupings: Mapping[str, Grouping] = _NO_GROUPINGS,
) -> Rows:
    """The rows of each client, by a name of the table such as `dirichlet:0.3`, or by a function of the user's.

    `labels` are the targets of all samples, and `users` the natural user of each, where the data has users; `groupings`
    are further ways in which samples belong together.
    """
    if not isinstance(how, str):
        return from_function(how, labels, clients, seed)
    name, _, argument = how.partition(":")
    entry = _entry(how, name, argument)
    _check_fits(how, entry, labels, clients)
    more = {"users": owners(how, users, groupings)} if entry.by_user else {}
    if entry.argument is None:
        return entry.rule(labels, clients, seed, **more)
    value = entry.argument.read(how) if isinstance(entry.argument, Number) else argument
    return entry.rule(labels, clients, seed, value, **more)


def repeats(how: str) -> bool:
    """Whether a partition of this spelling may give a sample to several clients."""
    entry = PARTITIONS.get(how.partition(":")[0])
    return entry is not None and entry.repeats


def check_spelling(how: str) -> None:
    """Refuse a partition that the table does not have, or without the number that it needs."""
    if how == OWN:
        return
    name, _, argument = how.partition(":")
    entry = _entry(how, name, argument)
    if isinstance(entry.argument, Number):
        entry.argument.read(how)


def _check_fits(how: str, entry: Partition, labels: np.ndarray, clients: int) -> None:
    """Refuse a partition that cannot split these samples among this many clients."""
    if not clients and not entry.counts_clients:
        raise UserError(f"clients is 0, which means every user, but partition is '{how}'; give --clients N")
    if clients > len(labels):
        raise UserError(f"clients is {clients}, more than the {len(labels)} samples there are to share")
    if entry.by_class:
        _check_classes(how, labels)
    if entry.one_by_one:
        _check_draws(how, len(labels), clients)


def spelled(how: str | SplitFunction) -> str:
    """What a scenario's `partition` is for a name or a function of the user's."""
    return how if isinstance(how, str) else OWN


def _entry(how: str, name: str, argument: str) -> Partition:
    if how == OWN:
        raise UserError("partition is 'own', a function or data that was passed as an object; pass it again")
    entry = PARTITIONS.get(name)
    if entry is None or (argument and entry.argument is None and not entry.by_user):
        known = ", ".join(line.spelled(known) for known, line in PARTITIONS.items())
        raise UserError(f"there is no partition '{how}'{nearest(name, PARTITIONS)} ({known})")
    return entry


def _check_classes(how: str, labels: np.ndarray) -> None:
    """Refuse targets that are not one class a sample: numbers, and tokens of shape (n, T)."""
    whole = labels.dtype.kind in "iu"
    if whole and labels.ndim == 1:
        return
    several = f"a sample of this data set has {labels[0].size} targets, not one class"
    why = several if whole else "the targets of this data set are not classes"
    raise UserError(f"partition is '{how}', but {why}; use {_listed(lambda line: not line.by_class)}")


def _listed(fitting: Callable[[Partition], bool]) -> str:
    """The lines of the table that fit, for an error."""
    *others, last = (line.spelled(name) for name, line in PARTITIONS.items() if fitting(line))
    return f"{', '.join(others)} or {last}"


def _quick(line: Partition) -> bool:
    return not (line.one_by_one or line.counts_clients)


def _check_draws(how: str, samples: int, clients: int) -> None:
    draws = samples * (clients + 1) // 2
    if draws > MOST_DRAWS:
        raise UserError(
            f"partition is '{how}' with {clients:,} clients and {samples:,} samples: its split draws {draws:,} "
            f"numbers one after another, at most {MOST_DRAWS:,}; give fewer --clients, or use {_listed(_quick)}"
        )


def _sizes(samples: int, clients: int) -> list[int]:
    """⌊n/N⌋ each, one more for the first n mod N: no sample is left out."""
    return [samples // clients + (client < samples % clients) for client in range(clients)]


def _iid(labels: np.ndarray, clients: int, seed: int) -> Rows:
    """A random order of all samples, cut into equal pieces."""
    order = generator(seed, "split/iid").permutation(len(labels))
    return np.split(order, np.cumsum(_sizes(len(labels), clients))[:-1])


def _dirichlet(labels: np.ndarray, clients: int, seed: int, alpha: float) -> Rows:
    """FedACG's balanced split: client i draws its class mix p_i ~ Dir(α), then its samples by it."""
    draw = generator(seed, "split/dirichlet")
    classes = int(labels.max()) + 1
    return _by_mixes(labels, clients, draw, (draw.dirichlet(np.full(classes, alpha)) for _ in itertools.count()))


def _authors(labels: np.ndarray, clients: int, seed: int, alpha: float) -> Rows:
    """The split behind the tables of FedAGM and FedACG: their p_i, which come from NumPy's seed 0 whatever the run.

    Which sample of a class goes to which client is drawn here: their order also depends on image augmentation.
    """
    if seed:
        raise UserError(
            f"split_seed is {seed}, but partition authors:{alpha:g} is one split, whatever the seed; leave split_seed"
            f" out, or draw other splits with dirichlet:{alpha:g}"
        )
    return _by_mixes(labels, clients, generator(0, "authors"), legacy_mixes(alpha, int(labels.max()) + 1))


def _by_mixes(labels: np.ndarray, clients: int, draw: np.random.Generator, mixes: Iterator[np.ndarray]) -> Rows:
    """One client after another draws its samples without replacement, each unassigned sample s with probability
    ∝ p_i[y_s], where p_i is the next of the mixes.

    Drawing one after another without replacement is taking the smallest E_s / p_i[y_s] with E_s ~ Exp(1). Late clients
    draw from depleted classes, as in the authors' split.
    """
    free = np.arange(len(labels))
    shares: Rows = []
    for size in _sizes(len(labels), clients):
        log_p = np.log(np.maximum(next(mixes), 1e-300))
        waiting = np.log(draw.standard_exponential(len(free))) - log_p[labels[free]]
        first = np.argpartition(waiting, size - 1)[:size]
        first = first[np.argsort(waiting[first])]
        shares.append(draw.permutation(free[first]))
        free = np.delete(free, first)
    return shares


def _dirichlet_repeated(labels: np.ndarray, clients: int, seed: int, alpha: float) -> Rows:
    """FL-Simulator's split: places are filled in random order, each with a class drawn from its client's p_i ~ Dir(α)
    and the next sample of that class, which begins anew when it is used up. So no client gets less of a class because
    others came first; some samples are held several times, and others by nobody.
    """
    draw = generator(seed, "split/dirichlet-repeated")
    classes = np.unique(labels)
    shares = np.cumsum(draw.dirichlet(np.full(len(classes), alpha), size=clients), axis=1)
    owners = draw.permutation(np.repeat(np.arange(clients), _sizes(len(labels), clients)))
    drawn = draw.random(len(labels)) * shares[owners, -1]
    wanted = (drawn[:, None] >= shares[owners, :-1]).sum(1)
    rows = np.zeros(len(labels), np.int64)
    for number, label in enumerate(classes):
        places, own = np.flatnonzero(wanted == number), draw.permutation(np.flatnonzero(labels == label))
        rows[places] = np.resize(own, len(places))
    return [rows[owners == client] for client in range(clients)]


def _gradma(labels: np.ndarray, clients: int, seed: int, omega: float) -> Rows:
    """GradMA's strict split: q_c ~ Dir(ω) over the N workers for each class c; first, twice, every worker in order
    takes one sample of a random class (BatchNorm needs two); then each class, shuffled, is cut at ⌊cumsum(q_c)·n_c⌋.
    """
    if len(labels) < 2 * clients:
        raise UserError(f"partition gradma gives every client two samples first; {clients} clients need {2 * clients}")
    draw = generator(seed, "split/gradma")
    classes = int(labels.max()) + 1
    shares = draw.dirichlet(np.full(clients, omega), size=classes)
    left = [list(np.flatnonzero(labels == number)) for number in range(classes)]
    held: list[list[int]] = [[] for _ in range(clients)]
    for own in held * 2:
        there = [rows for rows in left if rows]
        own.append(int(there[draw.integers(len(there))].pop()))
    for share, rows in zip(shares, left, strict=True):
        order = draw.permutation(np.array(rows, dtype=np.int64))
        cuts = np.floor(np.cumsum(share)[:-1] * len(order)).astype(int)
        for own, piece in zip(held, np.split(order, cuts), strict=True):
            own.extend(piece.tolist())
    return [draw.permutation(np.array(own, dtype=np.int64)) for own in held]


def _shards(labels: np.ndarray, clients: int, seed: int, each: int) -> Rows:
    """Samples sorted by label, cut into N·C shards as equal as can be; every client gets C of them at random."""
    if clients * each > len(labels):
        raise UserError(f"partition shards:{each} needs {clients * each} samples for {clients} clients")
    draw = generator(seed, "split/shards")
    mixed = draw.permutation(len(labels))
    order = mixed[np.argsort(labels[mixed], kind="stable")]
    shards = np.split(order, np.cumsum(_sizes(len(labels), clients * each))[:-1])
    hands = draw.permutation(clients * each).reshape(clients, each)
    return [draw.permutation(np.concatenate([shards[number] for number in hand])) for hand in hands]


def _quantity(labels: np.ndarray, clients: int, seed: int, alpha: float) -> Rows:
    """Samples at random, sizes 1 + (n − N)·Dir(α), rounded so that they add up."""
    draw = generator(seed, "split/quantity")
    ends = np.floor(np.cumsum(draw.dirichlet(np.full(clients, alpha))) * (len(labels) - clients) + 1e-9).astype(int)
    ends[-1] = len(labels) - clients
    return np.split(draw.permutation(len(labels)), (ends + np.arange(1, clients + 1))[:-1])


def _natural(labels: np.ndarray, clients: int, seed: int, users: np.ndarray) -> Rows:
    """One client for each user, in the order of the users' numbers; samples of users beyond N are left out."""
    order = np.argsort(users, kind="stable")
    _, firsts = np.unique(users[order], return_index=True)
    if clients > len(firsts):
        raise UserError(
            f"clients is {clients}, but the data has {len(firsts)} users; use --clients {len(firsts)} or fewer "
            "(0 takes all)"
        )
    return np.split(order, firsts[1:])[: clients or len(firsts)]


PARTITIONS: Mapping[str, Partition] = {
    "iid": Partition(_iid, "equal sizes, at random"),
    "dirichlet": Partition(
        _dirichlet,
        "equal sizes, the class mix of each client ~ Dir(ALPHA) (FedACG)",
        Number("ALPHA", "0.3"),
        by_class=True,
        one_by_one=True,
    ),
    "authors": Partition(
        _authors,
        "as dirichlet, with the class mixes that FedACG's authors drew: one split, whatever the seed",
        Number("ALPHA", "0.3"),
        by_class=True,
        one_by_one=True,
    ),
    "dirichlet-repeated": Partition(
        _dirichlet_repeated,
        "as dirichlet, but a class that is used up begins anew: samples may repeat, others are left out (FL-Simulator)",
        Number("ALPHA", "0.3"),
        by_class=True,
        repeats=True,
    ),
    "gradma": Partition(
        _gradma,
        "each class over the clients ~ Dir(OMEGA), after two samples for everybody: unequal sizes (GradMA)",
        Number("OMEGA", "0.1"),
        by_class=True,
    ),
    "shards": Partition(
        _shards,
        "C shards of the samples sorted by label for each client (McMahan et al. 2017)",
        Number("C", "2", whole=True),
        by_class=True,
    ),
    "quantity": Partition(
        _quantity, "samples at random, sizes ~ Dir(ALPHA), at least one each", Number("ALPHA", "1.0")
    ),
    "natural": Partition(
        _natural,
        "the data's own users, or natural:GROUPING; with fewer clients the first of them, the others are left out",
        by_user=True,
        counts_clients=True,
    ),
    "file": Partition(
        from_file,
        "a JSON list with the list of rows of each client, or an object of such lists; other rows are left out",
        "PATH",
        counts_clients=True,
    ),
}
