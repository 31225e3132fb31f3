"""Budgets: the capacities that a caller gives for a machine's memories, as sizes or as shares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from remat.errors import OptionError
from remat.graph.machine import Machine
from remat.messages import brief, unknown_memory
from remat.plugin.problem import Problem, budget_memory
from remat.units import Units, parse_budget

if TYPE_CHECKING:
    from remat.solving.relative_budget import Wholes

Budget = int | float | str | Mapping[str, int | float | str | None] | None
"""Sizes, or shares: a float between 0 and 1, or a text such as ``80%``."""


def apply_budget(problem: Problem, budget: Budget, wholes: Wholes | None = None) -> Problem:
    """Override capacities; a bare budget is for the working memory, or an adjoint's fastest storage level.

    For a pipeline it applies to every device memory that has no budget by name. ``type:t4`` names the memories of all
    processors of that type; the budget of a specific memory takes precedence.

    Parameters
    ----------
    problem : Problem
    budget : int, float, str, mapping or None
    wholes : Wholes, optional
        Peaks of the problem to which relative budgets refer; reused when many budgets are applied.
    """
    if budget is None:
        return problem
    instance, machine, units = problem.instance, problem.machine, problem.units
    # A bare budget among named ones has the empty name; no memory has it.
    given: Mapping[str, int | float | str | None] = budget if isinstance(budget, Mapping) else {"": budget}
    for key in given:
        if not isinstance(key, str):
            raise OptionError(unknown_memory(key, machine.memory_index), argument="budget")
    given = _types_resolved(machine, given)
    if instance.budgets_are_for_all and "" in given:
        bare = {machine.memories[processor.memory].name: given[""] for processor in machine.processors}
        given = {name: size for name, size in (bare | dict(given)).items() if name}
    default = machine.memories[budget_memory(instance, machine)].name
    if wholes is None:
        from remat.solving.relative_budget import Wholes

        wholes = Wholes(problem)
    capacities: dict[str, int | None] = {}
    for key, size in given.items():
        name = key or default
        if name in capacities:
            raise OptionError(f"memory {name!r} is given twice", argument="budget")
        if name not in machine.memory_index:  # refused before a share is taken of it
            machine.with_capacities({name: None})
        capacities[name] = None if size is None else read_capacity(size, wholes, name, units)
    return problem.with_capacities(capacities)


OF_TYPE = "type:"


def _types_resolved(
    machine: Machine, given: Mapping[str, int | float | str | None]
) -> Mapping[str, int | float | str | None]:
    """Replace a type of processors by the memories of these; memories with a budget by name keep it."""
    found = {key: size for key, size in given.items() if not key.startswith(OF_TYPE)}
    for key in given.keys() - found.keys():
        kind = key.removeprefix(OF_TYPE)
        memories = {machine.memories[p.memory].name for p in machine.processors if p.type and p.type == kind}
        if not memories:
            known = ", ".join(dict.fromkeys(p.type for p in machine.processors if p.type)) or "none"
            raise OptionError(f"no processor is of type {brief(kind)}; the types are: {known}", argument="budget")
        for name in sorted(memories - given.keys()):
            if name in found:
                raise OptionError(f"memory {name!r} belongs to processors of two types", argument="budget")
            found[name] = given[key]
    return found


def read_capacity(size: float | str, wholes: Wholes, memory: str, units: Units) -> int:
    """Read a size, or a share such as ``80%`` or 0.8 of a memory's peak without recomputation.

    Raises
    ------
    remat.OptionError
        For anything else.
    """
    try:
        from remat.solving.relative_budget import plain_budget, share_of

        size = plain_budget(size)
        share = share_of(size)
        if share is None:
            return parse_budget(size, units)
    except ValueError as error:
        raise OptionError(f"{error}", argument="budget") from None
    return wholes.part(share, memory, str(size).strip())


MUCH_TOO_SMALL = 1000

SHORT = 1.5
"""Weight of the distance, in powers, of a guessed budget that is less than the need."""


def meant_size(size: object, problem: Problem, memory: str) -> str:
    """Return the size that a bare number of bytes probably means, such as ``16GB``; empty if it means bytes.

    A number that is at most a thousandth of the memory's minimum probably lacks a unit. The guess is the unit whose
    size is nearest to the minimum, preferably above it. The minimum of a memory that may stay empty, such as a storage
    level or a host, is the largest value.
    """
    if problem.units.memory == "unit" or not str(size).strip().isdecimal():
        return ""
    bound = problem.least_of(problem.machine.memory_index[memory])
    need = int(problem.graph.size.max(initial=0)) if bound is None else bound.size
    number = int(str(size).strip()[:30])
    if number == 0 or number * MUCH_TOO_SMALL > need:
        return ""

    def distance(power: int) -> float:
        found = math.log(number * 1000**power / need)
        return found if found >= 0 else -SHORT * found

    power = min(range(1, 5), key=distance)
    return f"{number}{('kB', 'MB', 'GB', 'TB')[power - 1]}"
