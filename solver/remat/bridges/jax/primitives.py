"""Properties of JAX's primitives: what XLA fuses, what it does not copy, and the operations of products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

Given = TypeVar("Given")

VIEWS = frozenset({"reshape", "squeeze", "expand_dims", "copy", "copy_p", "stop_gradient", "name", "bitcast"})
"""Primitives whose result occupies the memory of their first argument."""

CALLS = {
    **dict.fromkeys(("jit", "pjit", "remat", "remat2", "checkpoint"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call", "call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
"""Primitives that run one jaxpr once, and the parameter that holds it."""

REMAT = frozenset({"remat", "remat2", "checkpoint"})

COSTLY = frozenset(
    [
        "cos",
        "cosh",
        "digamma",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "lgamma",
        "log",
        "log1p",
        "logistic",
        "pow",
        "sin",
        "sinh",
        "tan",
        "tanh",
    ]
)
"""Pointwise primitives that XLA does not compute twice."""

POINTWISE = COSTLY | frozenset(
    [
        "abs",
        "acos",
        "acosh",
        "add",
        "add_any",
        "and",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "bessel_i0e",
        "bessel_i1e",
        "broadcast_in_dim",
        "cbrt",
        "ceil",
        "clamp",
        "complex",
        "concatenate",
        "conj",
        "convert_element_type",
        "div",
        "dynamic_slice",
        "eq",
        "floor",
        "ge",
        "gt",
        "imag",
        "integer_pow",
        "iota",
        "is_finite",
        "le",
        "lt",
        "max",
        "min",
        "mul",
        "ne",
        "neg",
        "nextafter",
        "not",
        "or",
        "pad",
        "population_count",
        "random_bits_wrap",
        "real",
        "reduce_precision",
        "rem",
        "rev",
        "round",
        "rsqrt",
        "select_n",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "slice",
        "split",
        "sqrt",
        "square",
        "sub",
        "transpose",
        "xor",
    ]
)
"""Primitives that XLA computes where their result is read."""


def scan_parts(eqn: Any, values: Sequence[Given]) -> tuple[Sequence[Given], Sequence[Given], Sequence[Given]]:
    """Return the arguments of a scan: its constants, its carried values, and the arrays over which it iterates."""
    fixed = eqn.params["num_consts"]
    first = fixed + eqn.params["num_carry"]
    return values[:fixed], values[fixed:first], values[first:]


def is_reduction(name: str) -> bool:
    """Whether a primitive reads fused arguments and writes a smaller result."""
    return name.startswith("reduce_") or name in ("argmax", "argmin")


def size_of(aval: Any) -> int:
    """Return the bytes of an array."""
    shape = getattr(aval, "shape", ())
    return int(prod(shape)) * int(getattr(getattr(aval, "dtype", None), "itemsize", 4))


def flops(eqn: Any) -> int:
    """Return the operations of a product, two for each multiplication and addition; others count 0."""
    name, inputs = eqn.primitive.name, [each.aval for each in eqn.invars]
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return int(2 * prod(eqn.outvars[0].aval.shape) * prod(inputs[0].shape[axis] for axis in contracted))
    if name == "conv_general_dilated":
        numbers = eqn.params["dimension_numbers"]
        features = inputs[1].shape[numbers.rhs_spec[0]]
        return int(2 * prod(eqn.outvars[0].aval.shape) * prod(inputs[1].shape) // max(1, features))
    return 0


def transposed(eqn: Any) -> int:
    """Return the bytes of the arguments of a product that XLA copies into another layout first.

    A left factor has its batch axes first and its summed axes last; a right factor has its batch axes first, and its
    summed axes next.
    """
    if eqn.primitive.name != "dot_general":
        return 0
    summed, batch = eqn.params["dimension_numbers"]
    copied = 0
    for left, axes, shared, each in zip((True, False), summed, batch, eqn.invars, strict=True):
        rank = len(each.aval.shape)
        first = rank - len(axes) if left else len(shared)
        straight = tuple(axes) == tuple(range(first, first + len(axes)))
        if not straight or tuple(shared) != tuple(range(len(shared))):
            copied += size_of(each.aval)
    return copied
