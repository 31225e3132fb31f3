"""Sparse tensors in a joint graph, for example gradients of embeddings: their identity and their largest size."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import Any

from remat.bridges.torch.shim import torch


def is_sparse(tensor: Any) -> bool:
    """Whether a tensor has one storage for indices and one for values instead of a single storage."""
    return bool(tensor.layout != torch.strided)


def storage_key(tensor: Any) -> int:
    """Return a number that tensors share if they share their storage; a sparse tensor shares with no other."""
    return -id(tensor) if is_sparse(tensor) else int(tensor.untyped_storage()._cdata)


class Entries:
    """Upper bounds of the entries of sparse tensors, node by node; the trace shows tensors without entries.

    An operator on sparse tensors has at most the entries of all of them; one that makes a sparse tensor from dense ones
    has at most one entry for each index that it reads.
    """

    def __init__(self, size: Callable[[Any], int]) -> None:
        self.size = size
        self._of: dict[Any, Any] = {}

    def bytes(self, node: Any, tensor: Any) -> int:
        """Return the largest size of a node's sparse result, which is `tensor`."""
        if node not in self._of:
            read = [known.meta.get("val") for known in node.all_input_nodes]
            indices = [r.numel() for r in read if isinstance(r, torch.Tensor) and not r.dtype.is_floating_point]
            known = [self._of[part] for part in node.all_input_nodes if part in self._of]
            self._of[node] = sum(known) if known else reduce(torch.sym_max, indices, 0)
        each = 8 * tensor.sparse_dim() + tensor.element_size() * prod(tensor.shape[tensor.sparse_dim() :])
        return self.size(self._of[node] * each)
