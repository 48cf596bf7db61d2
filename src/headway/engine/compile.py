"""A pure function of trees of tensors as one flat program, compiled where that is asked for.

The function is run once with tracers in place of tensors, so whatever Python it is made of (slots, dictionaries,
`torch.func.grad`, `vmap`) leaves a list of tensor operations behind. Python decisions are taken once, at that time;
tensors it reaches from outside (the samples) are read anew on every call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import Argument
from torch.utils import _pytree as pytree

from headway.engine.decompositions import DECOMPOSITIONS
from headway.engine.executor import CannotExecute
from headway.engine.kept_programs import environment, kept_programs
from headway.errors import UserError, first_words
from headway.trees import copied, leaves_like, tree_map
from headway.waiting import part

aten = torch.ops.aten
Result = TypeVar("Result")
Tree = TypeVar("Tree")

Options = Mapping[str, str | int | bool]
"""Settings of torch's compiler."""
OPTIONS: Options = {"loop_ordering_after_fusion": False}
"""Options for every program. In 2.11 the reordering of loops trips over operations on lists of tensors."""


def traced(
    function: Callable[..., Result],
    arguments: tuple[object, ...],
    *,
    compiled: bool,
    options: Options = MappingProxyType({}),
) -> Callable[..., Result]:
    """The function for arguments of these shapes; with `compiled` by torch's compiler, at its first call.

    It may write into its arguments: tracing works on copies. `options` are the compiler's.
    """
    flat, structure = pytree.tree_flatten(arguments)
    order = tree_map(lambda leaf: 0, arguments)
    form: list[pytree.TreeSpec] = []

    def plain(*leaves: Tensor) -> list[Tensor]:
        found, shape = pytree.tree_flatten(function(*pytree.tree_unflatten(list(leaves), structure)))
        form[:] = [shape]
        return found

    graph = make_fx(plain, decomposition_table=DECOMPOSITIONS)(*copied(flat))
    _refuse_own_draws(graph)
    _free_layouts(graph)
    program: Callable[..., list[Tensor]] = (
        torch.compile(graph, fullgraph=True, dynamic=False, options={**OPTIONS, **options}) if compiled else graph
    )

    def run(*given: object) -> Result:
        result: Result = pytree.tree_unflatten(program(*leaves_like(given, order)), form[0])
        return result

    return run


def compiled(function: Callable[..., Result], arguments: tuple[object, ...]) -> Callable[..., Result]:
    """The traced function after its first call, which compiles it; or why it cannot be compiled."""
    try:
        with part("compiling and capturing"), kept_programs() as names:
            program = traced(function, arguments, compiled=True)
            program(*arguments)
    except (CannotExecute, UserError):
        raise
    except Exception as fault:  # Python that asks for values, a missing compiler, one that fails: whatever it raises
        raise CannotExecute(f"it cannot be compiled: {first_words(fault)}") from fault

    def run(*given: object) -> Result:
        with environment(names):  # for arguments that lie in memory in another way it is compiled once more
            return program(*given)

    return run


def as_after_a_step(carry: Tree) -> Tree:
    """What a client begins with, in memory as a step leaves it: every tensor has its own.

    At first the received model stands for several tensors, and for all clients of a stack. For such the compiler would
    make the program once more, for the first step alone.
    """
    return copied(carry)


def _refuse_own_draws(graph: GraphModule) -> None:
    """Refuse a model that draws from torch's own generator: it would draw other numbers than in other executors."""
    for node in graph.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and not _drops_nothing(node):
            raise CannotExecute(f"the model draws random numbers by itself ({node.target})")


def _drops_nothing(node: Node) -> bool:
    """Whether an operation is attention that could drop some of its weights, and does not."""
    for place, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.name == "dropout_p":
            given = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", argument.default_value)
            return bool(given == 0)
    return False


def _memory(graph: GraphModule) -> dict[Node, Node]:
    """Maps each operation to the one whose memory holds its result: itself, or what it is a view of."""
    owners: dict[Node, Node] = {}
    for node in graph.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        looks_into = node.target in (operator.getitem, aten._unsafe_view.default) or (
            schema is not None and any(value.alias_info is not None for value in schema.returns)
        )
        source = node.args[0] if node.args else None
        owners[node] = owners[source] if looks_into and isinstance(source, Node) else node
    return owners


def _written(graph: GraphModule, owners: dict[Node, Node]) -> set[Node]:
    """The owners of memory that some operation writes into; a mere change of shape is not written."""
    given = (argument for node in graph.graph.nodes for argument in _outputs_among_inputs(node))
    parts = (part for one in given for part in (one if isinstance(one, list | tuple) else [one]))
    return {owners[part] for part in parts if isinstance(part, Node)}


def _outputs_among_inputs(node: Node) -> list[Argument]:
    """The arguments that an operation writes into."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable or torch.Tag.inplace_view in getattr(node.target, "tags", ()):
        return []
    named = zip(schema.arguments, node.args, strict=False)
    return [given for argument, given in named if argument.alias_info is not None and argument.alias_info.is_write]


def _free_layouts(graph: GraphModule) -> None:
    """Remove copies that only change the memory layout: the compiler chooses layouts by itself.

    `group_norm` asks for channels apart whatever its kernel wants, and so a network whose convolutions want them
    together would be copied back and forth at every layer. A copy stays where it, or what it was made of, is written
    into.
    """
    owners = _memory(graph)
    written = _written(graph, owners)
    for node in list(graph.graph.nodes):
        if node.target is aten.clone.default and node.kwargs.get("memory_format") is torch.contiguous_format:
            if not {owners[node], owners[node.args[0]]} & written:
                node.replace_all_uses_with(node.args[0])
                graph.graph.erase_node(node)
        elif node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = aten.reshape.default
    graph.recompile()
