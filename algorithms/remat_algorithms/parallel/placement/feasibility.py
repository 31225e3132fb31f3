"""Feasibility of parameters in memories, and a packing.

Each unit's parameters permanently occupy some memory in which the unit can run. The memory also needs the bytes that
one of its tasks reads and writes while it runs. Three proofs of infeasibility exist: a unit larger than every memory,
parameters larger than all memories together, and, by a constraint program, parts that cannot be packed.

A proof holds for all schedules of a stream, because its inputs are never copied. If tasks run once, a schedule may copy
parameters to where they are read, and the proof holds only for a class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remat.plugin import ALL_SCHEDULES, Context, LeastBudget, Problem, Proposal, format_size
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import Outcome, watched
from remat_algorithms.parallel.placement.model import Model
from remat_algorithms.parallel.placement.parameter_constraints import parameter_bytes, parameters_in

WORK = 5.0
"""Work limit of the packing program, in CP-SAT's own units."""

WORK_BEYOND = 0.3
"""Work limit if the total already exceeds the memories; the program then finds the bytes lost by indivisibility."""

LARGEST = 2**44
"""Maximum total of all sizes in the program; larger totals are scaled."""


@dataclass(frozen=True)
class Packing:
    """Memories of units, or the minimum number of missing bytes.

    Attributes
    ----------
    homes : tuple of int or None
        Memory of each unit.
    missing : int
        Proved minimum number of bytes that the memories together lack.
    """

    homes: tuple[int, ...] | None
    missing: int


def refuse(problem: Problem, model: Model, context: Context, scope: str = ALL_SCHEDULES) -> Proposal | None:
    """Return the proposal if no schedule of a class (`scope`) fits; None if that is not proved."""
    return _unable(model, scope) or _too_large(problem, model, scope) or _too_many(problem, model, context, scope)


def _unable(model: Model, scope: str) -> Proposal | None:
    """Refuse a unit that no processor can run."""
    for unit, tasks in enumerate(model.tasks):
        if not _able(model, unit):
            names = _names(model, unit)
            kept = (
                f"{names} have to be in one memory, and no processor"
                if len(tasks) > 1
                else f"no processor runs {names}"
            )
            note = f"{kept} can run all of them" if len(tasks) > 1 else f"{kept} where its inputs are"
            return Proposal(infeasible_within=scope if model.certain else None, notes=(note,))
    return None


def _names(model: Model, unit: int) -> str:
    names = ", ".join(model.graph.tasks[task] for task in model.tasks[unit][:4])
    return names + (", ..." if len(model.tasks[unit]) > 4 else "")


def _able(model: Model, unit: int) -> list[int]:
    """Return the memories in which a unit can run."""
    able = (model.time[:, unit] != float("inf")).nonzero()[0].tolist()
    return sorted({model.memory_of[processor] for processor in able})


def _too_large(problem: Problem, model: Model, scope: str) -> Proposal | None:
    """Refuse a unit that fits in no memory where it can run."""
    if not model.certain:
        return None
    machine = problem.machine
    for unit in range(model.units):
        need = model.size[unit] + model.working[unit]
        rooms = [(model.room[memory], memory) for memory in _able(model, unit)]
        limited = [(room, memory) for room, memory in rooms if room is not None]
        if len(limited) < len(rooms) or any(room >= need for room, _ in limited):
            continue
        room, memory = max(limited, key=lambda pair: (pair[0], -pair[1]))
        capacity = machine.memories[memory].capacity
        assert capacity is not None
        names = _names(model, unit)
        held = format_size(need, problem.units)
        kept = f"{names} must be in one memory and take" if len(model.tasks[unit]) > 1 else f"{names} takes"
        note = f"{kept} {held} with their parameters, more than any memory where they can run has"
        if len(model.tasks[unit]) == 1:
            note = f"{kept} {held} with its parameters, more than any memory where it can run has"
        sample = problem.samples
        task = model.tasks[unit][0] * (1 if sample is None else sample.count)
        least = LeastBudget(capacity - room + need, task, False, memory)
        return Proposal(infeasible_within=scope, least=least, notes=(note,))
    return None


def _too_many(problem: Problem, model: Model, context: Context, scope: str) -> Proposal | None:
    """Refuse parameters that exceed all memories together, or that cannot be packed into them."""
    if not model.certain:
        return None
    rooms = {memory: model.room[memory] for memory in sorted({m for u in range(model.units) for m in _able(model, u)})}
    if any(room is None for room in rooms.values()) or not rooms:
        return None
    total = parameter_bytes(model)
    there = sum(max(0, room) for room in rooms.values() if room is not None)
    missing = total - there
    missing = max(missing, pack(model, context, work=WORK if missing <= 0 else WORK_BEYOND).missing)
    if missing <= 0:
        return None
    machine = problem.machine
    memory = max(rooms, key=lambda index: (rooms[index] or 0, -index))
    capacity = machine.memories[memory].capacity
    assert capacity is not None
    capacities = [machine.memories[index].capacity or 0 for index in rooms]
    sizes = [format_size(size, problem.units) for size in (total, sum(capacities), sum(capacities) + missing)]
    why = "" if total > there else ", but no division of the parameters fits"
    note = f"parameters take {sizes[0]}, and the memories hold {sizes[1]} in all{why}: at least {sizes[2]} is needed"
    if problem.instance.budgets_are_for_all:
        least = _least_of_all(problem, model, sorted(rooms))
    else:
        least = LeastBudget(capacity + missing, None, False, memory)
    return Proposal(infeasible_within=scope, least=least, notes=(note,))


def _least_of_all(problem: Problem, model: Model, memories: Sequence[int]) -> LeastBudget:
    """Return a bound on one budget for all memories, each of which is too small now.

    Notes
    -----
    With m memories, one memory holds k + 1 of the largest k m + 1 units, so at least the bytes of the smallest k + 1.
    """
    capacities = [problem.machine.memories[index].capacity or 0 for index in memories]
    static = min(capacity - (model.room[index] or 0) for capacity, index in zip(capacities, memories, strict=True))
    total, sizes = parameter_bytes(model), sorted((int(size) for size in model.size), reverse=True)
    held = -(-total // len(memories))
    if sum(sizes) == total:  # units share none of them
        for count in range(len(sizes) // len(memories) + 1):
            largest = sizes[: count * len(memories) + 1]
            if len(largest) == count * len(memories) + 1:
                held = max(held, sum(largest[-count - 1 :]))
    return LeastBudget(max(min(capacities) + 1, static + held), None, False, memories[0])


def pack(model: Model, context: Context, less: Sequence[int] = (), work: float = WORK) -> Packing:
    """Assign units to memories, minimising the excess bytes, by a constraint program.

    Sizes are rounded such that the missing bytes are never overstated.
    """
    from ortools.sat.python import cp_model

    total = parameter_bytes(model) + sum(room for room in model.room if room is not None)
    shift = max(0, total.bit_length() - LARGEST.bit_length())
    program: Any = cp_model.CpModel()
    memories = sorted({memory for unit in range(model.units) for memory in _able(model, unit)})
    inside = [{memory: program.new_bool_var("") for memory in _able(model, unit)} for unit in range(model.units)]
    over: list[Any] = []
    for own in inside:
        program.add_exactly_one(own.values())
    for memory in memories:
        room = model.room[memory]
        if room is None:
            continue
        room = max(0, room - (less[memory] if less else 0))
        more = program.new_int_var(0, max(1, (total >> shift) + 1), "")
        over.append(more)
        units = [unit for unit in range(model.units) if memory in inside[unit]]
        terms, sizes = parameters_in(program, model, {unit: inside[unit][memory] for unit in units})
        held = cp_model.LinearExpr.weighted_sum(terms, [size >> shift for size in sizes])
        limit = -(-room >> shift)
        program.add(held <= limit + more)
        for unit in units:
            if model.working[unit]:
                program.add(held + (model.working[unit] >> shift) <= limit + more).only_enforce_if(inside[unit][memory])
    program.minimize(sum(over))
    found: list[tuple[int, ...]] = []

    def chosen(value: Any) -> tuple[int, ...]:
        return tuple(next(memory for memory, on in own.items() if value(on)) for own in inside)

    job = CpSatJob(program, threads=1, seed=context.seed, seconds=None, chosen=chosen, found=found.append)
    job.solver.parameters.max_deterministic_time = work
    answer = watched(job, lambda: context.interrupted)
    if answer.outcome in (Outcome.UNKNOWN, Outcome.INFEASIBLE):
        return Packing(None, 0)
    bound = max(0, math.ceil(answer.bound - 1e-6))
    # Of each memory that misses something, all but one byte may come from rounding up.
    rounded = min(len(over), bound) * ((1 << shift) - 1)
    return Packing(found[-1] if found else None, (bound << shift) - rounded)
