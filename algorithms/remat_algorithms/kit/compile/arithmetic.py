"""LLVM code for Python's arithmetic on 64-bit integers, floats and booleans."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

INT, REAL, TRUTH, BYTE = ir.IntType(64), ir.DoubleType(), ir.IntType(1), ir.IntType(8)
KINDS: dict[str, ir.Type] = {"int": INT, "float": REAL, "bool": TRUTH}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}

BUILTIN = ("int", "float", "bool", "min", "max", "abs")

WHOLE = 1 << 64


def constant_of(value: float) -> Any:
    """Return a number as a constant; an integer is reduced to its last 64 bits."""
    if isinstance(value, int):
        return ir.Constant(INT, (value + WHOLE // 2) % WHOLE - WHOLE // 2)
    return ir.Constant(REAL, value)


@dataclass(frozen=True)
class Arithmetic:
    """Arithmetic operations on an LLVM builder; operands of different kinds are converted."""

    builder: ir.IRBuilder

    def truth(self, value: Any) -> Any:
        """Return whether a value is nonzero."""
        if value.type == TRUTH:
            return value
        if value.type == REAL:
            return self.builder.fcmp_unordered("!=", value, ir.Constant(REAL, 0.0))
        return self.builder.icmp_signed("!=", value, ir.Constant(value.type, 0))

    def cast(self, value: Any, kind: ir.Type) -> Any:
        """Convert between kinds as an assignment does, never from float to integer."""
        if value.type == kind:
            return value
        if kind == TRUTH:
            return self.truth(value)
        if kind == BYTE:
            return self.builder.zext(self.truth(value), BYTE)
        if kind == INT and value.type == TRUTH:
            return self.builder.zext(value, INT)
        if kind == REAL and value.type == INT:
            return self.builder.sitofp(value, REAL)
        if kind == REAL and value.type == TRUTH:
            return self.builder.uitofp(value, REAL)
        raise TypeError(f"{value.type} where {kind} is wanted")

    def alike(self, values: Sequence[Any]) -> list[Any]:
        """Convert all values to float if one is a float, otherwise to integers."""
        kind = REAL if any(value.type == REAL for value in values) else INT
        return [self.cast(value, kind) for value in values]

    def arithmetic(self, operator: ast.operator, left: Any, right: Any) -> Any:
        """Return the result of an operator."""
        builder = self.builder
        if isinstance(operator, ast.Div):
            return builder.fdiv(self.cast(left, REAL), self.cast(right, REAL))
        left, right = self.alike([left, right])
        real = left.type == REAL
        match operator:
            case ast.Add():
                return builder.fadd(left, right) if real else builder.add(left, right)
            case ast.Sub():
                return builder.fsub(left, right) if real else builder.sub(left, right)
            case ast.Mult():
                return builder.fmul(left, right) if real else builder.mul(left, right)
            case ast.LShift() if not real:
                return builder.shl(left, right)
            case ast.RShift() if not real:
                return builder.ashr(left, right)
            case ast.BitAnd() if not real:
                return builder.and_(left, right)
            case ast.BitXor() if not real:
                return builder.xor(left, right)
            case ast.FloorDiv() | ast.Mod() if not real:
                return self._floored(left, right, quotient=isinstance(operator, ast.FloorDiv))
        raise TypeError(f"cannot compile {operator}")

    def _floored(self, left: Any, right: Any, *, quotient: bool) -> Any:
        builder, zero = self.builder, ir.Constant(INT, 0)
        rest = builder.srem(left, right)
        signs = builder.icmp_signed("<", builder.xor(rest, right), zero)
        off = builder.and_(builder.icmp_signed("!=", rest, zero), signs)
        if quotient:
            return builder.sub(builder.sdiv(left, right), builder.zext(off, INT))
        return builder.add(rest, builder.select(off, right, zero))

    def compare(self, operator: ast.cmpop, left: Any, right: Any) -> Any:
        """Return the result of a comparison."""
        left, right = self.alike([left, right])
        sign = COMPARISONS[type(operator)]
        if left.type == REAL:
            unordered = sign == "!="
            return (self.builder.fcmp_unordered if unordered else self.builder.fcmp_ordered)(sign, left, right)
        return self.builder.icmp_signed(sign, left, right)

    def builtin(self, name: str, values: list[Any]) -> Any:
        """Call one of `BUILTIN`."""
        builder = self.builder
        if name == "int":
            return builder.fptosi(values[0], INT) if values[0].type == REAL else self.cast(values[0], INT)
        if name in ("float", "bool"):
            return self.cast(values[0], KINDS[name])
        values = self.alike(values)
        if name == "abs":
            values = [values[0], builder.neg(values[0])] if values[0].type == INT else []
        if len(values) < 2:
            raise TypeError(f"cannot compile {name}")
        best = values[0]
        for value in values[1:]:
            # Python's `min` and `max` return the first of equal values.
            better = self.compare(ast.Lt() if name == "min" else ast.Gt(), value, best)
            best = builder.select(better, value, best)
        return best
