"""Inductor's copies of the arguments of convolutions, whose kernels read channels last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from remat.bridges.torch.tracing import operator_name

CONVOLUTION, BACKWARD = "aten.convolution.default", "aten.convolution_backward.default"
LAYOUT = "@layout"


@dataclass(frozen=True, slots=True)
class LayoutCopies:
    """Copies of inputs of the graph, at the start of the forward.

    Attributes
    ----------
    values : dict of str to int
        Bytes of each copy.
    reads : dict of str to tuple of str
        For each convolution and each backward of one, by node, the copies that it reads.
    """

    values: dict[str, int]
    reads: dict[str, tuple[str, ...]]


def layout_copies(nodes: Mapping[str, Any]) -> LayoutCopies:
    """Return Inductor's copies of weights and images in a joint graph.

    Inductor stores images channels last where it expects this to be faster, on the CPU always. Its own kernels
    write their values in this layout. An input of the graph is copied at the start of the forward; the backward of the
    convolution reads the copy.
    """
    found = LayoutCopies({}, {})
    convolutions = [node for node in nodes.values() if node.op == "call_function"]
    convolutions = [node for node in convolutions if operator_name(node) in (CONVOLUTION, BACKWARD)]
    if not convolutions or not _is_changed(convolutions[0].graph):
        return found
    for node in sorted(convolutions, key=lambda node: operator_name(node) == BACKWARD):
        backward = operator_name(node) == BACKWARD
        names = []
        for given in node.args[1:3] if backward else node.args[:2]:
            name = f"{given.name}{LAYOUT}"
            if given.op != "placeholder" or not (name in found.values if backward else _is_copied(given.meta["val"])):
                continue
            found.values[name] = int(given.meta["val"].numel()) * given.meta["val"].element_size()
            names.append(name)
        if names:
            found.reads[node.name] = tuple(names)
    return found


def _is_changed(graph: Any) -> bool:
    """Whether Inductor changes the layout of images in a graph."""
    lowering: Any = import_module("torch._inductor.graph")
    return bool(lowering.GraphLowering.decide_layout_opt(SimpleNamespace(graph=graph), is_inference=False))


def _is_copied(tensor: Any) -> bool:
    """Whether a tensor has four dimensions and is not channels last; the stride of a dimension of size 1 is free."""
    if tensor.dim() != 4:
        return False
    _, channels, height, width = tensor.shape
    wanted = channels * height * width, 1, channels * width, channels
    return any(
        size != 1 and stride != right for size, stride, right in zip(tensor.shape, tensor.stride(), wanted, strict=True)
    )


__all__ = ["LAYOUT", "LayoutCopies", "layout_copies"]
