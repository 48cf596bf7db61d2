"""The order of a run's sites, and where each can be reached now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field


def in_order(names: Sequence[str]) -> list[str]:
    """Names in the order of the clients' numbers: by letters, and by size of numbers (`site-2` before `site-10`)."""
    return sorted(names, key=lambda name: [(int(part), "") if part.isdigit() else (-1, part) for part in _PARTS(name)])


_PARTS = re.compile(r"\d+|\D+").findall


@dataclass
class Reach:
    """Where each site can be reached now, and what nodes were refused."""

    node_of: dict[str, str] = field(default_factory=dict)
    """By name."""
    refused: dict[str, str] = field(default_factory=dict)
    """Code and sentence, by node."""

    def place(self, name: str, node: str) -> None:
        """A site is at a node from now on."""
        self.node_of[name] = node
        self.refused.pop(node, None)

    def forget_away(self, nodes: Sequence[str]) -> None:
        """Nodes that were refused and went away are asked anew when they are back: they may have been put right."""
        self.refused = {node: why for node, why in self.refused.items() if node in set(nodes)}

    def unknown(self, nodes: Sequence[str]) -> list[str]:
        """Nodes that were never asked who they are."""
        known = {*self.node_of.values(), *self.refused}
        return [node for node in nodes if node not in known]
