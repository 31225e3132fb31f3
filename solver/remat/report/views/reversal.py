"""The reversal of a chain or an adjoint as lines over time: sweeps forward, sweeps back, states that are kept.

The picture of Griewank and Walther (*Evaluating Derivatives*, 2nd ed. 2008, ch. 12): time across, stages upwards.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remat.graph.taskgraph import IntArray, NumberArray
from remat.report.views.lifetimes import NEAR, Clock, Lives, Origin, lives_of
from remat.report.views.task_index_ranges import ChainLayout
from remat.schedule.steps import StepKind
from remat.solving.result import Result


class Stroke(enum.IntEnum):
    """The meaning of a line."""

    STORED = 0
    CHECKPOINT = 1
    FORWARD = 2
    SAVING = 3
    RECOMPUTATION = 4
    BACKWARD = 5


@dataclass(frozen=True, slots=True)
class Reversal:
    """Lines of the picture.

    Attributes
    ----------
    length : int
        Stages.
    stroke : (lines,) int64
        `Stroke`; those below come first.
    begin, end : (lines, 2) float64
        Time, and state (0..length).
    memory : (lines,) int64
        Where a state is kept; -1 of sweeps.
    hidden : int
        Number of lines left out, because they would cover others or exceed the limit.
    """

    length: int
    stroke: IntArray
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    hidden: int
    memory: IntArray


def reversal_of(result: Result, layout: ChainLayout, *, columns: int, rows: int, most: int) -> Reversal:
    """Return the lines; O(events log events).

    Parameters
    ----------
    result : Result
        The result of a chain or an adjoint, with a schedule.
    layout : ChainLayout
    columns, rows : int
        Pixels of the picture; lines that look the same are merged.
    most : int
        Lines; beyond, the longest of them, at least two thirds of them sweeps where there are so many. Each level of
        storage has an equal part of the rest, so that none hides another.
    """
    kept, sweeps = _kept(result, layout), _sweeps(result, layout, most)
    stroke = np.concatenate((kept[0], sweeps[0]))
    begin, end = np.concatenate((kept[1], sweeps[1])), np.concatenate((kept[2], sweeps[2]))
    memory = np.concatenate((kept[3], sweeps[3]))
    assert result.report is not None
    scale = np.array([columns / (float(result.report.makespan) or 1.0), rows / max(layout.length, 1)])
    pixels = np.column_stack((stroke, memory, np.rint(begin * scale), np.rint(end * scale)))
    _, chosen = np.unique(pixels, axis=0, return_index=True)
    if len(chosen) > most:
        # Sweeps are more informative than kept states, which get a third of the lines, or the rest.
        length = np.abs((end - begin) * scale).sum(axis=1)[chosen]
        chosen = chosen[np.argsort(-length, kind="stable")]
        sweep = stroke[chosen] > Stroke.CHECKPOINT
        room = max(most // 3, most - int(sweep.sum()))
        states = _shared(chosen[~sweep], memory[chosen[~sweep]], room)
        chosen = np.concatenate((states, chosen[sweep][: most - len(states)]))
    chosen = chosen[np.lexsort((chosen, stroke[chosen]))]
    hidden = len(stroke) - len(chosen)
    return Reversal(layout.length, stroke[chosen], begin[chosen], end[chosen], hidden, memory[chosen])


def _shared(lines: IntArray, memory: IntArray, room: int) -> IntArray:
    """Return the first lines up to a limit, shared evenly between the memories that have lines left."""
    turn = np.empty(len(lines), dtype=np.int64)
    for place in np.unique(memory).tolist():
        mine = memory == place
        turn[mine] = np.arange(int(mine.sum()))
    return lines[np.argsort(turn, kind="stable")[:room]]


@dataclass(frozen=True, slots=True)
class Use:
    """The number of states in a memory: `count[i]` from `time[i]` on.

    With `most` states the memory would be full: its largest count, and the states that would fit beside its peak, where
    it may contain other values. None if the memory is unlimited.
    """

    memory: int
    time: NDArray[np.float64]
    count: IntArray
    most: int | None


def _ends(result: Result, lives: Lives) -> NumberArray:
    """Return the time when the bytes of each residency are free; in-place runs reuse those of a dropped state."""
    steps, report = result.columns, result.report
    assert steps is not None
    assert report is not None
    ends = lives.end.copy()
    by_run = (lives.died >= 0) & (steps.kind[lives.died] == StepKind.RUN)
    by_run[by_run] = result.graph.in_place[steps.item[lives.died[by_run]]]
    ends[by_run] = report.start[lives.died[by_run]]
    return ends


def uses_of(result: Result, layout: ChainLayout) -> list[Use]:
    """Return the states that each memory holds over time, of those that ever hold one (O(events log events)).

    Parameters
    ----------
    result : Result
        The result of a chain or an adjoint, with a schedule.
    layout : ChainLayout
    """
    steps, report, machine = result.columns, result.report, result.machine
    assert steps is not None
    assert report is not None
    lives, clock = lives_of(result.graph, machine, steps, report), Clock(report)
    size = int(result.graph.size[: layout.length + 1].max(initial=1)) or 1
    uses = []
    for index in np.unique(lives.memory).tolist():
        mine = (lives.memory == index) & (lives.value <= layout.length)
        if not mine.any():
            continue
        begin, end = (clock.instants_of(times) for times in (lives.begin[mine], _ends(result, lives.of(mine))))
        instants, place = np.unique(np.concatenate((begin, end, [0])), return_inverse=True)
        change = np.zeros(len(instants), dtype=np.int64)
        np.add.at(change, place[: len(begin)], 1)
        np.add.at(change, place[len(begin) : -1], -1)
        times = clock.time_of(instants).astype(np.float64)
        memory, count = machine.memories[index], change.cumsum()
        most = None
        if memory.capacity is not None:
            most = int(count.max(initial=0)) + (memory.capacity - report.peaks[memory.name].size) // size
        uses.append(Use(index, times, count, most))
    return uses


_Lines = tuple[IntArray, NDArray[np.float64], NDArray[np.float64], IntArray]


def _kept(result: Result, layout: ChainLayout) -> _Lines:
    """States that outlast the first forward from them, or were fetched for their backward; those in other memories."""
    steps, report = result.columns, result.report
    assert steps is not None
    assert report is not None
    lives = lives_of(result.graph, result.machine, steps, report)
    state = lives.value <= layout.length
    working = lives.memory == result.machine.processors[0].memory
    inside, away = lives.of(state & working), lives.of(state & ~working)
    runs = np.flatnonzero((steps.kind == StepKind.RUN) & (steps.item < layout.loss))
    stage, over = layout.stages(result.graph)[steps.item[runs]], report.end[runs].astype(np.float64)
    used = _next_end(stage - 1, over, inside)
    fetched = inside.origin == Origin.COPIED
    lasting = (used + NEAR * float(report.makespan) < inside.end) | (fetched & np.isinf(used))
    # A state exists once the forward that writes it has ended, although its bytes are allocated before.
    there = fetched | (inside.origin == Origin.INITIAL)
    made = np.where(there, inside.begin, _next_end(stage, over, inside))[lasting]
    stroke = np.repeat(np.array([Stroke.CHECKPOINT, Stroke.STORED], dtype=np.int64), [len(made), len(away.value)])
    value = np.concatenate((inside.value[lasting], away.value)).astype(np.float64)
    begin = np.concatenate((made, away.begin.astype(np.float64)))
    end = np.concatenate((inside.end[lasting], away.end)).astype(np.float64)
    memory = np.concatenate((inside.memory[lasting], away.memory))
    return stroke, np.column_stack((begin, value)), np.column_stack((end, value)), memory


def _next_end(state: IntArray, over: NDArray[np.float64], lives: Lives) -> NDArray[np.float64]:
    """Return the first end of a run of the stay's state after the stay began; infinite if there is none."""
    order = np.lexsort((over, state))
    state, over = state[order], over[order]
    times, rank = np.unique(np.concatenate((over, lives.begin)), return_inverse=True)
    count = len(times) + 1
    known, asked = state * count + rank[: len(over)], lives.value * count + rank[len(over) :]
    place = np.searchsorted(known, asked, side="right")
    found: NDArray[np.float64] = np.where(
        np.append(state, -1)[place] == lives.value, np.append(over, np.inf)[place], np.inf
    )
    return found


def _sweeps(result: Result, layout: ChainLayout, most: int) -> _Lines:
    """Return the runs; beyond `most`, merge consecutive runs along the chain into one line."""
    steps, report = result.columns, result.report
    assert steps is not None
    assert report is not None
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    runs = runs[np.argsort(report.start[runs], kind="stable")]
    tasks = steps.item[runs]
    stage = layout.stages(result.graph)[tasks]
    start, over = report.start[runs].astype(np.float64), report.end[runs].astype(np.float64)
    forward = tasks < layout.loss
    again = np.ones(len(runs), dtype=bool)
    firsts = np.flatnonzero(forward)
    again[firsts[np.unique(stage[firsts], return_index=True)[1]]] = False
    stroke = np.where(tasks < layout.length, Stroke.FORWARD, Stroke.SAVING)
    stroke = np.where(again, Stroke.RECOMPUTATION, stroke)
    stroke = np.where(forward, stroke, Stroke.BACKWARD)
    # Forward i goes from state i-1 to i, its backward back again; the loss, of state L, to the state itself.
    low = np.minimum(stage - 1, layout.length).astype(np.float64)
    high = np.minimum(stage, layout.length).astype(np.float64)
    origin, goal = np.where(forward, low, high), np.where(forward, high, low)
    near = NEAR * float(report.makespan)
    joins = (stroke[1:] == stroke[:-1]) & (origin[1:] == goal[:-1]) & (start[1:] <= over[:-1] + near)
    if len(runs) <= most:
        joins[:] = False
    first = np.flatnonzero(np.concatenate(([True], ~joins))) if len(runs) else runs
    last = np.append(first[1:], len(runs)) - 1
    lines = np.column_stack((start[first], origin[first])), np.column_stack((over[last], goal[last]))
    return stroke[first].astype(np.int64), *lines, np.full(len(first), -1, dtype=np.int64)
