"""Budgets: the capacities that a caller gives for a machine's memories."""

from __future__ import annotations

from collections.abc import Mapping

from remat.errors import OptionError
from remat.graph.machine import Machine
from remat.instance import Instance
from remat.units import Units, parse_size

Budget = int | str | Mapping[str, int | str | None] | None


def budget_memory(instance: Instance, machine: Machine) -> int:
    """Return the memory (by index) that a bare budget means: the first, or an adjoint's first storage level."""
    return 1 if instance.has_storage and len(machine.memories) > 1 else 0


def apply_budget(machine: Machine, budget: Budget, instance: Instance, units: Units) -> Machine:
    """Override capacities; a bare budget means the first memory, or an adjoint's first storage level."""
    if budget is None:
        return machine
    # A bare budget among named ones has the empty name; no memory has it.
    given: Mapping[str, int | str | None] = budget if isinstance(budget, Mapping) else {"": budget}
    default = machine.memories[budget_memory(instance, machine)].name
    capacities: dict[str, int | None] = {}
    for key, size in given.items():
        name = key or default
        if name in capacities:
            raise OptionError(f"memory {name!r} is given twice", argument="budget")
        try:
            capacities[name] = None if size is None else parse_size(size, units)
        except ValueError as error:
            raise OptionError(f"{error}", argument="budget") from None
    return machine.with_capacities(capacities)
