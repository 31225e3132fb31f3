"""Collectives in executed graphs: they return when the process group has released their tensors."""

from __future__ import annotations

import time
from typing import Any

from remat.bridges.torch.recording import COLLECTIVES, WAIT
from remat.bridges.torch.shim import pytree, torch
from remat.bridges.torch.tracing import operator_name

PATIENCE = 1.0
"""Seconds after which a tensor counts as held by somebody else than the process group."""
PAUSE = 1e-5


def settle_collectives(graph: Any) -> None:
    """Run each collective of a graph through `run_collective`, in place.

    Parameters
    ----------
    graph : fx.Graph
    """
    for node in graph.nodes:
        if node.op == "call_function" and operator_name(node).startswith(COLLECTIVES) and operator_name(node) != WAIT:
            node.args, node.target = (node.target, *node.args), run_collective


def run_collective(operator: Any, *args: Any, **options: Any) -> Any:
    """Run a collective, and return when the process group has released its tensors.

    On the CPU, a thread of gloo still holds them for a moment after the wait. Tensors that the graph drops meanwhile
    would exceed the planned peak. On other devices, the allocator follows the order of the stream.

    Parameters
    ----------
    operator : callable
        Returns a new tensor, or a list of new tensors.
    *args, **options
        Its arguments.
    """
    given = [part for part in pytree.tree_leaves((args, options)) if isinstance(part, torch.Tensor)]
    holders = [part._use_count() for part in given]
    returned = operator(*args, **options)
    made = [part for part in pytree.tree_leaves(returned) if isinstance(part, torch.Tensor)]
    for part in made:
        torch.ops._c10d_functional.wait_tensor(part)
    expected = [(part, most) for part, most in zip(given + made, holders + [1] * len(made), strict=True) if part.is_cpu]
    end = time.monotonic() + PATIENCE
    while any(part._use_count() > most for part, most in expected) and time.monotonic() < end:
        time.sleep(PAUSE)
    return returned


__all__ = ["run_collective", "settle_collectives"]
