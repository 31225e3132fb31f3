"""Reading an ONNX file: dimensions get their values, ONNX infers shapes, and plain data comes out."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from remat.bridges.onnx.model import Graph, Node, Tensor
from remat.documents import read_bytes
from remat.errors import InstanceError, MissingExtraError, OptionError
from remat.messages import brief, listing

LARGEST = 2**31
"""Bytes of a file, protobuf's own limit; weights in other files are not read."""

FLOATS = {1: 4, 10: 2, 11: 8, 16: 2, 17: 1, 18: 1, 19: 1, 20: 1}
"""Bytes of floating types by ONNX's number."""

OTHERS = {2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 8: 8, 9: 1, 12: 4, 13: 8, 14: 8, 15: 16, 21: 1, 22: 1}


def read_model(path: str, dimensions: Mapping[str, int] | None = None) -> Graph:
    """Read a model.

    Parameters
    ----------
    path : str
    dimensions : mapping of str to int, optional
        Values of named dimensions, such as ``batch``.

    Raises
    ------
    MissingExtraError
        Without the package onnx.
    InstanceError
        If the file is not an ONNX model or has control flow; the message has the node.
    OptionError
        For a dimension that the model does not have.
    """
    try:
        onnx = import_module("onnx")
        inliner, inference = import_module("onnx.inliner"), import_module("onnx.shape_inference")
    except ImportError:
        raise MissingExtraError("remat import onnx", "onnx", "onnx") from None
    file, data = read_bytes(path, "model", LARGEST)
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's own, of several versions
        raise InstanceError(f"{file}: no ONNX model: {str(error) or type(error).__name__}") from None
    if not model.graph.node:
        raise InstanceError(f"{file}: no ONNX model: the graph has no nodes")
    _set_dimensions(model, dimensions or {})
    try:
        if model.functions:
            model = inliner.inline_local_functions(model)
        model.ir_version = max(model.ir_version, 4)  # before, inference ignores initializers that are no inputs
        model = inference.infer_shapes(model, check_type=False, strict_mode=True, data_prop=True)
    except Exception as error:  # any error of shape inference
        raise InstanceError(f"{file}: shapes cannot be inferred: {error}") from None
    return _graph(model, file)


def _set_dimensions(model: Any, dimensions: Mapping[str, int]) -> None:
    left = dict(dimensions)
    known = {d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim if d.dim_param}
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param in dimensions:
                left.pop(dimension.dim_param, None)
                dimension.dim_value = dimensions[dimension.dim_param]
    if left:
        there = f"it has {listing(sorted(known))}" if known else "it has no named ones"
        raise OptionError(f"the model has no dimension {brief(next(iter(left)))}; {there}", argument="dim")


def _graph(model: Any, file: str) -> Graph:
    graph = model.graph
    tensors: dict[str, Tensor] = {}
    dimensions: dict[str, str] = {}
    initializers = {each.name for each in graph.initializer} | {each.values.name for each in graph.sparse_initializer}
    for value in (*graph.value_info, *graph.output, *graph.input):
        tensors[value.name] = _tensor(value, file)
    for value in graph.input:
        if value.name not in initializers:
            for number, dimension in enumerate(value.type.tensor_type.shape.dim):
                if not dimension.HasField("dim_value"):
                    dimensions[dimension.dim_param or f"{value.name}[{number}]"] = value.name
    for each in graph.initializer:
        tensors[each.name] = Tensor(tuple(each.dims), *_kind(each.data_type))
    nodes: list[Node] = []
    names: set[str] = set()
    for number, node in enumerate(graph.node):
        operator = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        name = node.name or f"{node.op_type}_{number}"
        name = name if name not in names else f"{name}#{number}"
        names.add(name)
        attributes = {each.name: _attribute(each) for each in node.attribute}
        made = Node(name, operator, tuple(node.input), tuple(node.output), attributes)
        if any(each.type in (5, 10) for each in node.attribute):  # a graph, or several
            raise InstanceError(f"{file}: {made}: control flow (a graph inside an operator) is not supported")
        nodes.append(made)
    inputs = tuple(value.name for value in graph.input if value.name not in initializers)
    outputs = tuple(value.name for value in graph.output)
    return Graph(graph.name or "onnx", tuple(nodes), tensors, inputs, outputs, frozenset(initializers), dimensions)


def _tensor(value: Any, file: str) -> Tensor:
    kind = value.type.WhichOneof("value")
    if kind is not None and kind != "tensor_type":
        raise InstanceError(f"{file}: {brief(value.name)} is not a tensor ({kind})")
    given = value.type.tensor_type
    shape: tuple[int, ...] | None = None
    if given.HasField("shape") and all(each.HasField("dim_value") for each in given.shape.dim):
        shape = tuple(each.dim_value for each in given.shape.dim)
        if any(each < 0 for each in shape):
            raise InstanceError(f"{file}: {brief(value.name)} has a negative dimension")
    return Tensor(shape, *_kind(given.elem_type))


def _kind(number: int) -> tuple[int, bool]:
    return (FLOATS[number], True) if number in FLOATS else (OTHERS.get(number, 1), False)


def _attribute(each: Any) -> Any:
    """Return a number, numbers or a text; None for tensors and others, which nothing here needs."""
    match each.type:
        case 1:
            return float(each.f)
        case 2:
            return int(each.i)
        case 3:
            return each.s.decode("utf-8", "replace")
        case 6:
            return [float(number) for number in each.floats]
        case 7:
            return [int(number) for number in each.ints]
    return None
