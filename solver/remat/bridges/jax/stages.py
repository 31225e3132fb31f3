"""Cut a forward into stages at points that a single value crosses; each scan over layers is a separate stage."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from remat.bridges.jax.evaluation import run_equation, variables
from remat.bridges.jax.primitives import CALLS, flops, size_of

MOST = 48
"""Stages between scans."""

LONG, MANY, READERS = 0.5, 0.25, 3
"""A value stays throughout if it spans this share of the program, or a smaller one with several readers."""


@dataclass(frozen=True)
class Stage:
    """Consecutive equations.

    Attributes
    ----------
    equations : tuple of JaxprEqn
        One, if it is a scan.
    reads, writes : tuple of Var
        Variables of other stages.
    passing : frozenset of Var
        What is in memory after it, and not throughout.
    """

    equations: tuple[Any, ...]
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]
    passing: frozenset[Any]

    @property
    def scan(self) -> Any:
        """The equation of a scan over layers, or None."""
        return self.equations[0] if len(self.equations) == 1 and is_layers(self.equations[0]) else None

    def labels(self) -> dict[Any, str]:
        """Return a name for each result."""
        results = (variable for eqn in self.equations for variable in eqn.outvars)
        return {variable: f"remat.{index}" for index, variable in enumerate(results)}

    def run(self, arguments: Sequence[Any], names: Collection[str] | None = None) -> list[Any]:
        """Run the stage on its inputs; results in `names` (None: all) get their names."""
        known = dict(zip(self.reads, arguments, strict=True))
        given = {variable: name for variable, name in self.labels().items() if names is None or name in names}
        for eqn in self.equations:
            run_equation(eqn, known, given)
        return [known[each] for each in self.writes]


@dataclass(frozen=True)
class Cut:
    """The stages of a jaxpr, and the values that stay throughout."""

    stages: tuple[Stage, ...]
    throughout: frozenset[Any]


def is_layers(eqn: Any) -> bool:
    """Whether an equation is a scan that computes products over several layers."""
    return eqn.primitive.name == "scan" and eqn.params["length"] > 1 and works(eqn)


def works(eqn: Any) -> bool:
    """Whether an equation computes a product or runs a loop."""
    if eqn.primitive.name in ("while", "cond"):
        return True
    inner = eqn.params.get("jaxpr" if eqn.primitive.name == "scan" else CALLS.get(eqn.primitive.name, ""))
    if inner is None:
        return flops(eqn) > 0
    return any(works(each) for each in getattr(inner, "jaxpr", inner).eqns)


def whole(jaxpr: Any) -> Stage:
    """Return all equations of a jaxpr as one stage that reads all its inputs."""
    return Stage(tuple(jaxpr.eqns), (*jaxpr.constvars, *jaxpr.invars), tuple(variables(jaxpr.outvars)), frozenset())


def cut(jaxpr: Any) -> Cut:
    """Cut a jaxpr without nested calls into stages."""
    eqns = jaxpr.eqns
    count = len(eqns)
    made = {variable: index for index, eqn in enumerate(eqns) for variable in eqn.outvars}
    readers: dict[Any, list[int]] = {variable: [] for variable in made}
    for index, eqn in enumerate(eqns):
        for each in variables(eqn.invars):
            if each in readers:
                readers[each].append(index)
    results = set(variables(jaxpr.outvars))
    last = {each: count if each in results else max(at, default=-1) for each, at in readers.items()}
    throughout = set()
    for each, at in readers.items():
        share = (last[each] - made[each]) / max(1, count) if last[each] < count else 0
        if share >= LONG or (share >= MANY and len(at) >= READERS):
            throughout.add(each)
    passing: list[set[Any]] = [set() for _ in range(count + 1)]
    for each, first in made.items():
        if each not in throughout:
            for place in range(first + 1, min(last[each], count) + 1):
                passing[place].add(each)
    bounds = _bounds(eqns, passing)
    stages = []
    for start, end in pairwise(bounds):
        own = eqns[start:end]
        inside = {variable for eqn in own for variable in eqn.outvars}
        read = dict.fromkeys(each for eqn in own for each in variables(eqn.invars) if each not in inside)
        writes = tuple(variable for eqn in own for variable in eqn.outvars if last.get(variable, -1) >= end)
        stages.append(Stage(tuple(own), tuple(read), writes, frozenset(passing[end])))
    return Cut(tuple(stages), frozenset(throughout))


def _bounds(eqns: Sequence[Any], passing: Sequence[set[Any]]) -> list[int]:
    """Return where stages begin and end: around scans, and once between two products where one value passes."""
    forced = {0, len(eqns)}
    for index, eqn in enumerate(eqns):
        if is_layers(eqn):
            forced |= {index, index + 1}
    chosen: list[int] = []
    best: tuple[int, int] | None = None
    worked = False
    for place in range(1, len(eqns)):
        if works(eqns[place - 1]):
            if best is not None:
                chosen.append(best[1])
            best, worked = None, True
        if worked and len(passing[place]) == 1:
            size = sum(size_of(each.aval) for each in passing[place])
            best = min(best or (size, place), (size, place))
    step = -(-len(chosen) // MOST) or 1
    return sorted(forced | set(chosen[step - 1 :: step]))
