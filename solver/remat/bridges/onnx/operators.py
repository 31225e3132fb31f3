"""Properties of operators: their work, the outputs that are views, and the inputs of their backwards."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from remat.bridges.onnx.model import Graph, Node

VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
"""Operators whose output is their first input, seen differently."""

POINTWISE = frozenset(
    (
        *("Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Reciprocal", "LeakyRelu", "PRelu", "Clip", "HardSwish", "Swish"),
        *("HardSigmoid", "Gelu", "Erf", "Softplus", "Softsign", "Mish", "Elu", "Selu", "Celu", "ThresholdedRelu"),
        *("Abs", "Neg", "Log", "Pow", "Sin", "Cos", "Add", "Sum", "Sub", "Mean", "Mul", "Div", "Max", "Min"),
        "BatchNormalization",
    )
)
"""Operators whose results depend only on the elements at the same place, so that a result may replace an input."""

RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1}


def flops(graph: Graph, node: Node) -> int:
    """Return the floating-point operations of products: two for each multiplication and addition.

    Other operators are bound by the memory that they move, and count 0.
    """
    shapes = [graph.tensor(name).shape if name else None for name in node.inputs]
    output = graph.tensor(node.outputs[0]).shape if node.outputs else None
    first = shapes[0] if shapes else None
    second = shapes[1] if len(shapes) > 1 else None
    if output is None or first is None:
        return 0
    if node.operator == "Conv" and second is not None:
        return 2 * prod(output) * prod(second[1:])
    if node.operator == "ConvTranspose" and second is not None:
        return 2 * prod(first) * prod(second[1:])
    if node.operator == "Gemm" and first:
        inner = first[0] if node.attributes.get("transA") else first[-1]
        return 2 * prod(output) * inner
    if node.operator in ("MatMul", "MatMulInteger", "QLinearMatMul") and first:
        return 2 * prod(output) * first[-1]
    if node.operator == "Einsum":
        return 2 * _einsum(graph, node)
    if node.operator in RECURRENT and second is not None and len(first) == 3 and len(second) == 3:
        hidden = second[1] // RECURRENT[node.operator]
        return 2 * first[0] * first[1] * second[0] * second[1] * (second[2] + hidden)
    return 0


def _einsum(graph: Graph, node: Node) -> int:
    """Return the products of an einsum, computed at once."""
    terms = str(node.attributes.get("equation", "")).partition("->")[0].replace(" ", "").split(",")
    sizes: dict[str, int] = {}
    for term, name in zip(terms, node.inputs, strict=False):
        shape = graph.tensor(name).shape or ()
        if "." not in term and len(term) == len(shape):
            sizes.update(zip(term, shape, strict=True))
    return prod(sizes.values()) if sizes else 0


@dataclass(frozen=True, slots=True)
class Rule:
    """The reads and results of an operator's backward.

    Attributes
    ----------
    inputs, outputs : bool
        Whether it reads the inputs, or the outputs, of the forward.
    product : bool
        Whether each gradient is a product with the other input, which only that gradient needs.
    passes : bool
        Whether gradients are passed on without a kernel.
    mask : int
        Bytes per element of the output that the forward writes for the backward.
    statistics : int
        Axis of the input whose length times 8 bytes are written for the backward; -1: there are none.
    trained : int
        Number of the last input that may be a trained parameter (of a norm its bias, not the running statistics).
    indices : bool
        Whether it reads the forward's indices and conditions.
    """

    inputs: bool = False
    outputs: bool = False
    product: bool = False
    passes: bool = False
    mask: int = 0
    statistics: int = -1
    trained: int = 0
    indices: bool = False


LAST = 1_000
"""A number that no input has: all of them may be trained."""

_PRODUCT = Rule(product=True, trained=LAST)
_OF_INPUT = Rule(inputs=True)
_OF_OUTPUT = Rule(outputs=True)
_NOTHING = Rule()
_BY_INDEX = Rule(indices=True, trained=LAST)
_PASSES = Rule(passes=True, trained=LAST)

RULES: dict[str, Rule] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul", "Mul"), _PRODUCT),
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "Exp", "Sqrt", "Reciprocal"), _OF_OUTPUT),
    **dict.fromkeys(
        (
            *("LeakyRelu", "Clip", "HardSwish", "HardSigmoid", "Gelu", "Erf", "Softplus", "Softsign", "Mish", "Elu"),
            *("Selu", "Celu", "ThresholdedRelu", "Abs", "Log", "Pow", "Sin", "Cos", "Div", "LRN"),
            *("AveragePool", "ReduceL2", "ReduceSumSquare", "Max", "Min", "Swish"),
        ),
        _OF_INPUT,
    ),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "GlobalMaxPool", "ReduceProd"), Rule(inputs=True, outputs=True)),
    **dict.fromkeys(("Add", "Sum"), _PASSES),
    **dict.fromkeys(("PRelu", "Einsum"), Rule(inputs=True, trained=LAST)),
    **dict.fromkeys(("Sub", "Mean"), Rule(trained=LAST)),
    **dict.fromkeys(("Gather", "GatherND", "GatherElements", "Where", "ScatterND", "ScatterElements"), _BY_INDEX),
    **dict.fromkeys(
        (
            *("Neg", "Cast", "Concat", "Split", "Slice", "Transpose", "Pad", "Expand", "Tile", "CumSum"),
            *("ReduceSum", "ReduceMean", "GlobalAveragePool", "Resize", "Upsample", "DepthToSpace", "SpaceToDepth"),
        ),
        _NOTHING,
    ),
    "MaxPool": Rule(inputs=True, mask=8),
    "Dropout": Rule(mask=1),
    "BatchNormalization": Rule(inputs=True, statistics=1, trained=2),
    "InstanceNormalization": Rule(inputs=True, statistics=1, trained=2),
    "GroupNormalization": Rule(inputs=True, statistics=1, trained=2),
    "LayerNormalization": Rule(inputs=True, statistics=0, trained=2),
    "RMSNormalization": Rule(inputs=True, statistics=0, trained=1),
}
"""By operator. Floating inputs have gradients, and so have parameters of more than one number."""
