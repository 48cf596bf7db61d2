"""Populations whose samples are made when they are read: how they are split, and what cannot be done with them."""

from __future__ import annotations

from headway.data.federation import Federation
from headway.data.sources.source import Source
from headway.errors import UserError
from headway.methods.method import Method
from headway.scenario import Scenario


def federation_of(scenario: Scenario, source: Source) -> Federation:
    """A client for each user, or for each of the first users."""
    assert source.clients is not None
    count, most = scenario.clients, len(source.clients)
    if scenario.partition != "natural":
        raise UserError(
            f"partition is '{scenario.partition}', but the samples of {scenario.data} are made when they are read, "
            "user by user; use --partition natural"
        )
    if count > most:
        raise UserError(f"clients is {count}, but the data has {most} users; use --clients {most} or fewer (0: all)")
    clients = source.clients.first(count) if count else source.clients
    return Federation(source.train, source.test, clients, source.classes)


def check(scenario: Scenario, method: Method, federation: Federation) -> None:
    """Refuse what needs all samples of such a population at once."""
    if not federation.is_drawn:
        return
    wanted = {
        "validation": scenario.validation is not None,
        "client_test": scenario.client_test is not None,
        "global_loss": scenario.global_loss,
        f"method {method.name}": method.pooled or method.keeps_best,
    }
    for what, asked in wanted.items():
        if asked:
            raise UserError(
                f"{what} needs all samples, but those of {scenario.data} are made when they are read; leave it out, or "
                "use a smaller population"
            )
