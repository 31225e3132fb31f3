"""The gap-cover bound: the values that are absent between two needs, and the cost of recomputing them.

A gap is the interval between consecutive needs of a value, in the reference order. At each stage t,

    bytes resident in the keep-all schedule - sum of M_v x_g over the gaps g across t + sum of M_u e_u,t <= budget,

where x_g = 1 allows value v to be absent in its gap, at the cost of a rerun of its producer there. If an input u of
the producer is dead when the gap begins, it must be kept until the gap's first stage (e) or be recomputed (y):
x_g <= e_u + y_u. That recomputation needs its own inputs under the same rule. Reruns of a task that writes several
values count once for all of them: r >= sum of x_g + y_v, for each of its values v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from remat_algorithms.dag.plans.model import StageModel
from remat_algorithms.kit.programs.program import ProgramBuilder


@dataclass
class Lives:
    """The needs of values in the order without reruns.

    Attributes
    ----------
    made : list of int
        Stage that computes each value; -1 if it is resident at the start.
    needs : list of list of int
        Stages that read each value, followed by the number of stages if it must be resident at the end.
    memory : list of int
        Minimum memory of all schedules without reruns at each stage, in bytes.
    fixed : list of bool
        Values that are never absent before their last need, because no task can recompute them.
    """

    made: list[int]
    needs: list[list[int]]
    memory: list[int]
    fixed: list[bool]


def lives_of(model: StageModel) -> Lives:
    """Collect the lives of all values; O(accesses + values stages)."""
    tables, stages = model.tables, model.stages
    values = range(len(tables.size))
    made = [-1] * len(tables.size)
    needs: list[list[int]] = [[] for _ in values]
    memory = []
    for stage, item in enumerate(tables.first):
        reads = tables.read_value[tables.read_start[item] : tables.read_start[item + 1]]
        for value in reads:
            needs[value].append(stage)
        for value in tables.write_value[tables.write_start[item] : tables.write_start[item + 1]]:
            made[value] = stage
        written = tables.written[item]
        free = sum(tables.size[value] for value in reads if not tables.pinned[value])
        added = max(0, written - free) if tables.in_place[item] else written
        memory.append(tables.static[0] + added + tables.workspace[item])
    change = [0] * (stages + 1)
    for value in values:
        if tables.stays[value] or tables.pinned[value]:
            needs[value].append(stages)
        last = needs[value][-1] if needs[value] else made[value]
        # While its task writes it, a value is part of the bytes that the task adds.
        if last > made[value]:
            change[made[value] + 1] += tables.size[value]
            change[min(last + 1, stages)] -= tables.size[value]
    resident = 0
    for stage in range(stages):
        resident += change[stage]
        memory[stage] += resident
    return Lives(made, needs, memory, [maker < 0 for maker in tables.maker])


@dataclass
class GapCover:
    """The program, and its variables for gaps.

    Attributes
    ----------
    program : ProgramBuilder
    gaps : list of (value, begin, end, variable)
    """

    program: ProgramBuilder = field(default_factory=ProgramBuilder)
    gaps: list[tuple[int, int, int, int]] = field(default_factory=list)


def gap_cover(model: StageModel, budget: int, most: float = math.inf) -> GapCover | None:
    """Build the program of a simple model; None if its memory rows would have more than `most` coefficients."""
    tables, lives = model.tables, lives_of(model)
    spans = (
        end - begin - 1
        for value, needs in enumerate(lives.needs)
        for begin, end in zip([lives.made[value], *needs], needs, strict=False)
        if end > begin
    )
    room = most - sum(spans)
    if room < 0:
        return None
    cover = GapCover()
    program = cover.program
    over: list[list[tuple[int, int]]] = [[] for _ in range(model.stages)]
    by_value: list[list[int]] = [[] for _ in tables.size]
    for value, needs in enumerate(lives.needs):
        if lives.fixed[value]:
            continue
        for begin, end in zip([lives.made[value], *needs], needs, strict=False):
            if end > begin + 1:
                number = program.add_column(integer=True)
                cover.gaps.append((value, begin, end, number))
                by_value[value].append(number)
                for stage in range(begin + 1, end):
                    over[stage].append((number, tables.size[value]))
    again = _dead_inputs(model, lives, cover, over, room)
    if again is None:
        return None
    for stage, terms in enumerate(over):
        if terms or lives.memory[stage] > budget:
            program.add_row(terms, lower=lives.memory[stage] - budget)
    by_maker: dict[int, list[int]] = {}
    for value, maker in enumerate(tables.maker):
        if by_value[value] or value in again:
            by_maker.setdefault(maker, []).append(value)
    for maker, values in by_maker.items():
        groups = [[*by_value[value], *([again[value]] if value in again else [])] for value in values]
        if len(groups) == 1:
            for number in groups[0]:
                program.cost[number] += tables.time[maker]
            continue
        longest = max(map(len, groups))
        reruns = program.add_column(cost=tables.time[maker], upper=longest, integer=True)
        for group in groups:
            program.add_row([(reruns, 1), *((number, -1) for number in group)], lower=0)
    return cover


def _dead_inputs(
    model: StageModel, lives: Lives, cover: GapCover, over: list[list[tuple[int, int]]], room: float
) -> dict[int, int] | None:
    """Add the variables and rows for inputs of reruns that are dead when the gap begins.

    Returns
    -------
    dict or None
        The variable of each value that is recomputed; None if the rows would have more than `room` coefficients.
    """
    tables, program = model.tables, cover.program
    last = [needs[-1] if needs else made for needs, made in zip(lives.needs, lives.made, strict=True)]
    again: dict[int, int] = {}
    asked: list[tuple[int, int, int]] = []  # (variable of the rerun, input, stage until which it must be kept)
    waiting = [(number, tables.maker[value], begin) for value, begin, _, number in cover.gaps]
    for number, maker, begin in waiting:
        for read in tables.read_value[tables.read_start[maker] : tables.read_start[maker + 1]]:
            if last[read] > begin:
                continue
            asked.append((number, read, begin + 1))
            if read not in again and tables.maker[read] >= 0:
                again[read] = program.add_column(integer=True)
                waiting.append((again[read], tables.maker[read], last[read]))
    until: dict[int, list[int]] = {}
    for _, read, stage in asked:
        until.setdefault(read, []).append(stage)
    if sum(max(marks) - last[read] for read, marks in until.items()) > room:
        return None
    kept: dict[tuple[int, int], int] = {}
    for read, marks in until.items():
        before, previous = last[read], -1
        for mark in sorted(set(marks)):
            number = program.add_column(integer=True)
            kept[read, mark] = number
            if previous >= 0:
                program.add_row([(previous, 1), (number, -1)], lower=0)
            for stage in range(before + 1, min(mark, model.stages - 1) + 1):
                over[stage].append((number, -tables.size[read]))
            before, previous = mark, number
    for number, read, stage in asked:
        terms = [(kept[read, stage], 1), (number, -1)]
        if read in again:
            terms.append((again[read], 1))
        program.add_row(terms, lower=0)
    return again
