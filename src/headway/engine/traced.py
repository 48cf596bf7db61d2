"""A pure function of trees of tensors as one flat program, compiled where that is asked for.

The function is run once with tracers in place of tensors, so whatever Python it is made of (slots, dictionaries,
`torch.func.grad`, `vmap`) leaves a list of tensor operations behind. Python decisions are taken once, at that time;
tensors it reaches from outside (the samples) are read anew on every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from headway.engine.decompositions import DECOMPOSITIONS
from headway.engine.executor import CannotExecute
from headway.vectors import copied, leaves_of

aten = torch.ops.aten


OPTIONS: dict[str, Any] = {"loop_ordering_after_fusion": False}
"""Of torch's compiler. In 2.11 the reordering of loops trips over operations on lists of tensors."""


def traced(function: Callable[..., Any], arguments: tuple[Any, ...], *, compiled: bool) -> Any:
    """The function for arguments of these shapes; with `compiled` by torch's compiler, at its first call.

    It may write into its arguments: tracing works on copies.
    """
    flat, structure = pytree.tree_flatten(arguments)
    form: list[Any] = []

    def plain(*leaves: Any) -> list[Any]:
        found, shape = pytree.tree_flatten(function(*pytree.tree_unflatten(list(leaves), structure)))
        form[:] = [shape]
        return found

    graph = make_fx(plain, decomposition_table=DECOMPOSITIONS)(*copied(flat))
    _refuse_own_draws(graph)
    _free_layouts(graph)
    program: Any = torch.compile(graph, fullgraph=True, dynamic=False, options=OPTIONS) if compiled else graph
    return lambda *given: pytree.tree_unflatten(program(*leaves_of(given)), form[0])


def _refuse_own_draws(graph: GraphModule) -> None:
    """A model that draws from torch's own generator would draw other numbers here than in other executors."""
    for node in graph.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise CannotExecute(f"the model draws random numbers by itself ({node.target})")


def _writes_inside(node: Node) -> bool:
    """Whether an operation changes a tensor that is no argument of the program."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return False
    return not (isinstance(node.args[0], Node) and node.args[0].op == "placeholder")


def _free_layouts(graph: GraphModule) -> None:
    """Without copies that only change the memory layout: the compiler chooses layouts by itself.

    `group_norm` asks for channels apart whatever its kernel wants, and so a network whose convolutions want them
    together would be copied back and forth at every layer.
    """
    if any(_writes_inside(node) for node in graph.graph.nodes):
        return  # a copy may be there to be written into
    for node in list(graph.graph.nodes):
        if node.target is aten.clone.default and node.kwargs.get("memory_format") is torch.contiguous_format:
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
        elif node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = aten.reshape.default
    graph.recompile()
