"""Results whose storage is larger in the real kernels than the trace shows.

Some kernels shrink the shape of a result, and its storage keeps the size that it had before:

- a loss that is reduced holds the storage of the loss of each element;
- `copy` clones the whole storage that it overwrites a part of;
- `col2im` begins with a result like its input;
- a bag of embeddings has one more index than it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remat.bridges.torch.shim import torch

REDUCTION = {"mse_loss": 2, "smooth_l1_loss": 2, "soft_margin_loss": 2, "binary_cross_entropy": 3}
"""Losses that keep the storage of the unreduced loss, and the place of the argument `reduction` (default: mean)."""


def _value(part: Any) -> Any:
    return part.meta["val"]


def _loss(node: Any, _: int, tensor: Any) -> Any:
    place = REDUCTION[node.target.overloadpacket.__name__]
    reduction = node.args[place] if len(node.args) > place else 1
    if reduction == 0:
        return 0
    shape = torch.broadcast_shapes(*(_value(part).shape for part in node.args[:2]))
    return torch.Size(shape).numel() * tensor.element_size()


def _copy(node: Any, _: int, __: Any) -> Any:
    return _value(node.args[0]).untyped_storage().nbytes()


def _columns(node: Any, _: int, tensor: Any) -> Any:
    return _value(node.args[0]).numel() * tensor.element_size()


def _bag(node: Any, item: int, tensor: Any) -> Any:
    mode = node.args[4] if len(node.args) > 4 else 0
    return (tensor.numel() + 1) * tensor.element_size() if item == 1 and mode != 0 else 0


_RULES: dict[str, Callable[[Any, int, Any], Any]] = {
    **{f"aten.{name}.default": _loss for name in REDUCTION},
    "aten.copy.default": _copy,
    "aten.col2im.default": _columns,
    "aten._embedding_bag.default": _bag,
}


def storage_bytes(node: Any, item: int, tensor: Any) -> Any:
    """Return the bytes of the storage of a node's result (of a tuple: of an item), which may be a symbol.

    Parameters
    ----------
    node : torch.fx.Node
        The operator that makes the storage.
    item : int
    tensor : tensor
        The result in the trace.
    """
    shown = tensor.untyped_storage().nbytes()
    rule = _RULES.get(str(node.target))
    return shown if rule is None else torch.sym_max(shown, rule(node, item, tensor))
