"""The two graphs of a plan for PyTorch, and their execution with eager kernels and boxed arguments."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.collectives import settle_collectives
from remat.bridges.torch.graph_emission import Emitted, Part
from remat.bridges.torch.interpreter import from_mask, mask_scale
from remat.bridges.torch.shim import fx, torch


def build(captured: Captured, emitted: Emitted) -> tuple[Any, Any]:
    """Return the graph modules of forward and backward."""
    forward, backward = _module(captured, emitted.forward), _module(captured, emitted.backward)
    if captured.symbols is not None:
        _hide_saved(
            forward, len(emitted.forward.outputs) - len(emitted.saved) - len(emitted.opaque) - len(emitted.sizes)
        )
    return forward, backward


def _hide_saved(forward: Any, first: int) -> None:
    """Hide the shapes of saved tensors, of which PyTorch would note those with symbols: other orders save others."""
    (returned,) = forward.graph.find_nodes(op="output")
    for node in returned.args[0][first:]:
        if isinstance(node.meta["val"], torch.Tensor):
            node.meta = {key: value for key, value in node.meta.items() if key != "val"}


def _module(captured: Captured, part: Part) -> Any:
    graph = fx.Graph()
    made: dict[str, Any] = {}
    for name in part.inputs:
        made[name] = graph.placeholder(name)
        made[name].meta = dict(captured.by_name[name].meta)
    for line in part.lines:
        original = captured.by_name[line.node]
        stands = {captured.by_name[name]: made[other] for name, other in line.reads}
        if line.from_mask:
            read, mask = (made[name] for _, name in line.reads)
            copy = graph.call_function(from_mask, (read, mask, mask_scale(captured, line.reads[0][0], line.node)))
        else:
            copy = graph.node_copy(original, stands.__getitem__)
            copy.meta = {key: value for key, value in original.meta.items() if key != "recompute"}
        made[line.name] = copy
    graph.output(tuple(None if name is None else made[name] for name in part.outputs))
    graph.lint()
    return fx.GraphModule(captured.graph, graph)


def compile_boxed(module: Any, _: Any = None) -> Callable[[list[Any]], Any]:
    """Return a function that takes its arguments in a list, which it empties, and frees each value at its last use."""
    codes: Any = import_module("torch.fx.graph")
    settle_collectives(module.graph)
    module.graph.set_codegen(codes._BoxedCodeGen())
    module.recompile()
    forward: Callable[[list[Any]], Any] = module.forward

    def run(arguments: list[Any]) -> Any:
        return forward(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
