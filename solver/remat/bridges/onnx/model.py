"""The parts of an ONNX graph that the importer needs, as plain data independent of the package onnx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from remat.messages import brief


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor.

    Attributes
    ----------
    shape : tuple of int, or None
        None if inference does not find every dimension.
    element : int
        Bytes of an element.
    floating : bool
        Whether it can have a gradient.
    """

    shape: tuple[int, ...] | None
    element: int = 4
    floating: bool = True

    @property
    def count(self) -> int:
        """Elements; 0 where the shape is unknown, which `size` refuses."""
        return 0 if self.shape is None else prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes."""
        if self.shape is None:
            raise ValueError("the shape is unknown")
        return self.element * self.count


@dataclass(frozen=True, slots=True)
class Node:
    """An operator.

    Attributes
    ----------
    name : str
        Unique.
    operator : str
        Its type, without a domain for ONNX's own.
    inputs, outputs : tuple of str
        Empty names stand for optional ones that are missing.
    attributes : mapping
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the operator and the name for messages."""
        return f"{self.operator} {brief(self.name)}"


@dataclass(frozen=True, slots=True)
class Graph:
    """A model.

    Attributes
    ----------
    name : str
    nodes : tuple of Node
        In topological order.
    tensors : mapping of str to Tensor
        Everything that has a name.
    inputs, outputs : tuple of str
        Inputs without parameters.
    parameters : frozenset of str
        Initializers.
    dimensions : mapping of str to str
        Names of dimensions without a value, and the input that has each.
    """

    name: str
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: frozenset[str]
    dimensions: Mapping[str, str]

    def tensor(self, name: str) -> Tensor:
        """Return a tensor; its shape is unknown if the model does not describe it."""
        return self.tensors.get(name, Tensor(None))
