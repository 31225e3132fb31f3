"""Blocks as opaque operators of a trace, and as modules of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from remat.bridges.torch.blocks import Block
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import pytree, torch


class _Here:
    """Marks the place of a tensor among leaves; a class is the same object in copies."""


HERE = _Here


class _Call:
    """A block as its module calls it: it takes the tensors among its arguments, and returns those of its result."""

    def __init__(self, block: Block) -> None:
        torch.nn.Module.__init__(self)
        self.name = block.name
        self.block = block.module
        self.given: Any = None
        self.made: Any = None

    def forward(self, *tensors: Any) -> tuple[Any, ...]:
        """Call the block."""
        args, kwargs = filled(self.given, tensors)
        outline, found = outline_of(self.block(*args, **kwargs))
        if outline != self.made:
            raise TorchError(f"block {self.name} returns something else than when it was traced")
        return tuple(found)


BlockCall: Any = type("BlockCall", (_Call, torch.nn.Module), {})


def outline_of(tree: Any) -> tuple[Any, list[Any]]:
    """Return a structure without its tensors, and the tensors."""
    leaves, form = pytree.tree_flatten(tree)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return ([HERE if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], form), tensors


def filled(outline: Any, tensors: Sequence[Any]) -> Any:
    """Return the structure with these tensors."""
    leaves, form = outline
    left = iter(tensors)
    return pytree.tree_unflatten([next(left) if leaf is HERE else leaf for leaf in leaves], form)


_running: list[Callable[[Sequence[Any]], list[Any]]] = []


@cache
def opaque_block() -> Any:
    """Return the operator that represents a block in a trace."""
    library = torch.library.Library("remat", "FRAGMENT")
    library.define("block(int index, Tensor[] given) -> Tensor[]")
    torch.library.register_fake("remat::block", lambda index, given: _running[-1](given), lib=library)
    _libraries.append(library)
    return torch.ops.remat.block.default


_libraries: list[Any] = []
"""The library keeps its operators alive."""


def tracing(call: Any, index: int, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Record the call of a block as one operator, and return the block's result."""
    call.given, tensors = outline_of((args, kwargs))

    def run(given: Sequence[Any]) -> list[Any]:
        own_args, own_kwargs = filled(call.given, given)
        call.made, found = outline_of(forward(*own_args, **own_kwargs))
        return [tensor.clone() for tensor in found]

    operator = opaque_block()
    _running.append(run)
    try:
        made = operator(index, tensors)
    finally:
        _running.pop()
    return filled(call.made, made)


__all__ = ["HERE", "BlockCall", "filled", "opaque_block", "outline_of", "tracing"]
