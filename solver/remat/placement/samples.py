"""Placement of a pattern of samples: the steps of the first samples of the stream, with their drops."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from remat.graph.machine import Machine
from remat.graph.samples import Samples
from remat.graph.taskgraph import IntArray, NumberArray, Ragged, TaskGraph, instant_array
from remat.placement.durations import copy_held, copy_time, instants, run_time
from remat.schedule.modulo import ModuloSchedule, Turn
from remat.schedule.steps import WHOLE, StepKind, Steps
from remat.units import Number

ROUNDING = 1e-9
"""Rounding tolerance for two equal instants, as a share of the time of all steps."""


def place_samples(samples: Samples, machine: Machine, pattern: ModuloSchedule) -> Steps:
    """Turn a pattern into the placed steps of the first samples of the stream.

    Parameters
    ----------
    samples : Samples
        Samples of the pattern's graph.
    machine : Machine
    pattern : ModuloSchedule

    Returns
    -------
    Steps
        Sorted by start. At one instant, steps that take no time come first, then copies that occupy their link for no
        time but arrive later. Ties are broken by the smaller shift, then by the order of the pattern. The last use of a
        value in each memory, within its sample, drops it there.

    Raises
    ------
    OptionError
        For a copy without a link, or a processor that cannot run a task.

    Notes
    -----
    O(steps log steps). The verifier checks whether each value is present when it is read.
    """
    graph, turns, each = samples.graph, pattern.turns, pattern.samples
    lasting = [_time(graph, machine, turn) for turn in turns]
    rounds = -(-samples.count // each)
    index = np.tile(np.arange(len(turns)), rounds)
    number = np.array([turn.sample for turn in turns], dtype=np.int64)[index]
    number = number + each * np.repeat(np.arange(rounds), len(turns))
    begins = instant_array([turn.start + (turn.shift + q) * pattern.period for q in range(rounds) for turn in turns])
    seen = number < samples.count
    index, number, begins = index[seen], number[seen], begins[seen]
    slack = _slack(pattern, lasting, begins)
    takes = np.array(
        [
            int(time > slack) + int(_held(graph, machine, turn, time) > slack)
            for turn, time in zip(turns, lasting, strict=True)
        ]
    )
    shift = np.array([turn.shift for turn in turns], dtype=np.int64)[index]
    order = np.lexsort((number, index, shift, takes[index], instants(begins, slack)))
    index, number, begins = index[order], number[order], begins[order]
    dropped = _drops(samples, machine, pattern, lasting).gather(index)
    kind = np.array([int(turn.kind) for turn in turns], dtype=np.int8)[index]
    item = np.array([turn.item for turn in turns], dtype=np.int64)[index]
    is_run = kind == StepKind.RUN
    item = np.where(is_run, samples.tasks(item, number), 0) + _copied(samples, item, number, is_run)
    source, target, on = (
        np.array([getattr(turn, key) for turn in turns], dtype=np.int64)[index] for key in ("source", "target", "on")
    )
    runs = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(is_run, dtype=np.int64)))
    return Steps(
        kind=kind,
        item=item,
        source=source,
        target=target,
        amount=np.full(len(index), WHOLE, dtype=np.int64),
        drop=Ragged(dropped.start, samples.values(dropped.items, number[dropped.rows])),
        on=Ragged(runs, on[is_run]),
        start=begins,
        initial=tuple((int(samples.first[value]), memory) for value, memory in pattern.initial),
    )


def _copied(samples: Samples, item: IntArray, number: IntArray, is_run: np.ndarray) -> IntArray:
    found = np.zeros(len(item), dtype=np.int64)
    copies = np.flatnonzero(~is_run)
    found[copies] = samples.values(item[copies], number[copies])
    return found


def _time(graph: TaskGraph, machine: Machine, turn: Turn) -> Number:
    if turn.kind == StepKind.RUN:
        return run_time(graph, machine, turn.item, turn.on)
    return copy_time(graph, machine, turn.item, turn.source, turn.target)


def _held(graph: TaskGraph, machine: Machine, turn: Turn, time: Number) -> Number:
    """Return how long a turn occupies its processor, or the link of its copy."""
    return time if turn.kind == StepKind.RUN else copy_held(graph, machine, turn.item, turn.source, turn.target)


def _slack(pattern: ModuloSchedule, lasting: list[Number], begins: NumberArray) -> float:
    """Return the tolerance below which two instants are equal: for rounding, if times are not integers."""
    if begins.dtype == np.int64 and all(isinstance(time, int) for time in (*lasting, pattern.period)):
        return 0
    return ROUNDING * (float(begins.max(initial=0)) + float(max(lasting, default=0)))


def _drops(samples: Samples, machine: Machine, pattern: ModuloSchedule, lasting: list[Number]) -> Ragged:
    """Return the values that each turn drops: a sample's last use of a value in a memory drops it there."""
    graph, turns = samples.graph, pattern.turns
    begins = instant_array([pattern.start_of(turn) for turn in turns])
    ends = instant_array([begin + time for begin, time in zip(begins.tolist(), lasting, strict=True)])
    slack = _slack(pattern, lasting, begins)
    both = instants(np.concatenate((begins, ends)), slack)
    begins, ends = both[: len(turns)], both[len(turns) :]
    reads, writes = graph.reads.to_lists(), graph.writes.to_lists()
    last: dict[tuple[int, int, int], tuple[Number, Number, int]] = {}
    for place, turn in enumerate(turns):
        if turn.kind == StepKind.RUN:
            memory = machine.processors[turn.on].memory
            used = [(memory, value) for value in (*reads[turn.item], *writes[turn.item])]
        else:
            used = [(turn.source, turn.item), (turn.target, turn.item)]
        when = (ends[place].item(), begins[place].item(), place)
        for memory, value in used:
            key = (memory, value, turn.sample)
            if not samples.shared[value] and (key not in last or when > last[key]):
                last[key] = when
    dropped: defaultdict[int, list[int]] = defaultdict(list)
    for (memory, value, _), (_, _, place) in last.items():
        if turns[place].target != memory:  # a copied value that is never used is not dropped
            dropped[place].append(value)
    return Ragged.from_lists([sorted(dropped[place]) for place in range(len(turns))])
