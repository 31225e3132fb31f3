"""A jaxpr as plain operations on numbered values: calls are inlined, loops are one operation or unrolled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from remat.bridges.jax.primitives import CALLS, POINTWISE, VIEWS, flops, is_reduction, scan_parts, size_of, transposed
from remat.bridges.jax.shim import core

Held = int | tuple["Held", ...]
"""The contents of a variable: a value, or the values that each iteration adds in a loop that stacks them."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on values; its arguments are values, never literals.

    Attributes
    ----------
    primitive : str
    reads, writes : tuple of int
    flops : int
    scope : str
        The name stack of the program.
    workspace : int
        Bytes in memory during the operation alone.
    """

    primitive: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    flops: int = 0
    scope: str = ""
    workspace: int = 0

    @property
    def pointwise(self) -> bool:
        """Whether XLA computes it where its result is read."""
        return self.primitive in POINTWISE

    @property
    def fuses(self) -> bool:
        """Whether XLA computes its pointwise arguments in the same kernel."""
        return self.pointwise or is_reduction(self.primitive)


@dataclass
class Program:
    """Operations in order, and the sizes of their values.

    Attributes
    ----------
    sizes : list of int
        Bytes of each value.
    labels : dict of int to str
        Names from `checkpoint_name`, one for each value.
    work : Counter of str
        Operations of products, by type.
    """

    operations: list[Operation] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)
    work: Counter[str] = field(default_factory=Counter)
    opaque: Counter[str] = field(default_factory=Counter)

    def new(self, aval: Any) -> int:
        """Add a value."""
        self.sizes.append(size_of(aval))
        return len(self.sizes) - 1


def flatten(closed: Any, *, unroll: bool = False) -> Program:
    """Return the operations of a closed jaxpr.

    Parameters
    ----------
    closed : ClosedJaxpr
    unroll : bool
        Whether each iteration of a scan has operations of its own; otherwise a scan is one operation. Other loops and
        conditions are always one.
    """
    flat = _Flattener(Program(), unroll)
    jaxpr = closed.jaxpr
    variables = [*jaxpr.constvars, *jaxpr.invars]
    held: list[Held] = [flat.program.new(each.aval) for each in variables]
    flat.program.inputs = [each for each in held if isinstance(each, int)]
    outputs = flat.run(jaxpr, held, "")
    flat.program.outputs = [value for each in outputs if each is not None for value in _all(each)]
    return flat.program


def _all(held: Held) -> tuple[int, ...]:
    return (held,) if isinstance(held, int) else tuple(value for each in held for value in _all(each))


@dataclass
class _Flattener:
    program: Program
    unroll: bool

    def run(self, jaxpr: Any, held: Sequence[Held | None], scope: str) -> list[Held | None]:
        """Append the operations of a jaxpr, and return what its outputs are (None: a literal)."""
        known: dict[Any, Held | None] = dict(zip([*jaxpr.constvars, *jaxpr.invars], held, strict=True))

        def read(atom: Any) -> Held | None:
            return None if isinstance(atom, core.Literal) else known[atom]

        for eqn in jaxpr.eqns:
            arguments = [read(each) for each in eqn.invars]
            inner = "/".join(filter(None, (scope, str(eqn.source_info.name_stack))))
            known.update(zip(eqn.outvars, self._equation(eqn, arguments, inner), strict=True))
        return [read(each) for each in jaxpr.outvars]

    def _equation(self, eqn: Any, arguments: list[Held | None], scope: str) -> Sequence[Held | None]:
        name = eqn.primitive.name
        if name in CALLS:
            return self._call(eqn.params[CALLS[name]], arguments, scope)
        if name == "scan" and self.unroll:
            return self._scan(eqn, arguments, scope)
        if name in VIEWS and isinstance(arguments[0], int):
            if name == "name":
                self.program.labels.setdefault(arguments[0], eqn.params["name"])
            return [arguments[0]]
        reads = tuple(dict.fromkeys(value for each in arguments if each is not None for value in _all(each)))
        writes = tuple(self.program.new(each.aval) for each in eqn.outvars)
        work = flops(eqn)
        if work:
            self.program.work[str(eqn.invars[0].aval.dtype)] += work
        if any(True for _ in _bodies(eqn)):
            work = self._inside(eqn)
            self.program.opaque[name] += 1
        self.program.operations.append(Operation(name, reads, writes, work, scope, transposed(eqn)))
        return writes

    def _call(self, inner: Any, arguments: list[Held | None], scope: str) -> list[Held | None]:
        if isinstance(inner, core.ClosedJaxpr):
            constants: list[Held | None] = [self._constant(each) for each in inner.jaxpr.constvars]
            return self.run(inner.jaxpr, [*constants, *arguments], scope)
        return self.run(inner, arguments, scope)

    def _constant(self, variable: Any) -> int:
        value = self.program.new(variable.aval)
        self.program.inputs.append(value)
        return value

    def _scan(self, eqn: Any, arguments: list[Held | None], scope: str) -> list[Held | None]:
        body, length = eqn.params["jaxpr"], eqn.params["length"]
        consts, carry, stacks = scan_parts(eqn, arguments)
        carried = len(carry)
        made: list[list[Held | None]] = [[None] * length for _ in eqn.outvars[carried:]]
        order = reversed(range(length)) if eqn.params["reverse"] else range(length)
        for index in order:
            row = [each[index] if isinstance(each, tuple) else each for each in stacks]
            found = self._call(body, [*consts, *carry, *row], f"{scope}/{index}" if scope else str(index))
            carry = found[:carried]
            for column, value in zip(made, found[carried:], strict=True):
                column[index] = value
        stacked: list[Held | None] = []
        for column in made:
            rows = tuple(each for each in column if each is not None)
            stacked.append(rows if len(rows) == length else None)
        return [*carry, *stacked]

    def _inside(self, eqn: Any) -> int:
        """Return the operations of an opaque equation: a scan runs its body `length` times, a condition its largest."""
        works = []
        for closed in _bodies(eqn):
            inner = flatten(closed if isinstance(closed, core.ClosedJaxpr) else core.ClosedJaxpr(closed, []))
            self.program.work.update({key: count * eqn.params.get("length", 1) for key, count in inner.work.items()})
            works.append(sum(each.flops for each in inner.operations))
        return int(eqn.params.get("length", 1)) * max(works, default=0)


def _bodies(eqn: Any) -> Iterator[Any]:
    """Yield the jaxprs in an equation's parameters."""
    for value in eqn.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, core.ClosedJaxpr | core.Jaxpr):
                yield each
