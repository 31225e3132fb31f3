"""Parameters in one memory as terms of a constraint program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remat_algorithms.parallel.placement.model import Model


def parameters_in(program: Any, model: Model, inside: Mapping[int, Any]) -> tuple[list[Any], list[int]]:
    """Return literals, and the bytes that each adds to a memory if it holds.

    A parameter that several units read is stored there once.

    Parameters
    ----------
    program : ortools.sat.python.cp_model.CpModel
    model : Model
    inside : mapping of int to literal
        For each unit that may be in the memory, whether it is.
    """
    terms = [on for unit, on in inside.items() if model.own[unit]]
    sizes = [model.own[unit] for unit in inside if model.own[unit]]
    for size, units in model.shared:
        there = [inside[unit] for unit in units if unit in inside]
        if there:
            lies = program.new_bool_var("")
            for on in there:
                program.add_implication(on, lies)
            terms.append(lies)
            sizes.append(size)
    return terms, sizes


def parameter_bytes(model: Model) -> int:
    """Return the bytes of all parameters, each once."""
    return sum(model.own) + sum(size for size, _ in model.shared)
