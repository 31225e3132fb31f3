"""Placement of modulo schedules: the steps of the first samples of a stream, with their drops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from remat.graph.machine import Machine
from remat.graph.samples import Samples
from remat.graph.taskgraph import IntArray, Ragged, TaskGraph, instant_array
from remat.placement.durations import ROUNDING, copy_held, copy_time, instants, run_time
from remat.schedule.modulo import ModuloSchedule, Turn
from remat.schedule.orders import Orders, Pass, Phase, PipelineTasks, initial_of
from remat.schedule.patterns import Beat, Pattern
from remat.schedule.steps import WHOLE, StepKind, Steps
from remat.units import LARGEST_SIZE, Number

INSTANT = 1e-9
"""Largest difference of two equal instants, as a share of the time of all steps."""


def place_modulo(samples: Samples, machine: Machine, schedule: ModuloSchedule) -> Steps:
    """Turn a modulo schedule into the placed steps of the first samples of the stream.

    Parameters
    ----------
    samples : Samples
        Samples of the schedule's graph.
    machine : Machine
    schedule : ModuloSchedule

    Returns
    -------
    Steps
        Sorted by start. At one instant, steps that take no time come first, then copies that occupy their link for no
        time but arrive later. Ties are broken as `ModuloSchedule.earlier_first` says, then by the order of the turns.
        The last use of a value in each memory, within its sample, drops it there.

    Raises
    ------
    OptionError
        For a copy without a link, or a processor that cannot run a task.

    Notes
    -----
    O(steps log steps). The verifier checks whether each value is present when it is read.
    """
    graph, turns, each = samples.graph, schedule.turns, schedule.samples
    lengths = [_time(graph, machine, turn) for turn in turns]
    rounds = -(-samples.count // each)
    index = np.tile(np.arange(len(turns)), rounds)
    number = np.array([turn.sample for turn in turns], dtype=np.int64)[index]
    number = number + each * np.repeat(np.arange(rounds), len(turns))
    begins = instant_array([turn.start + (turn.shift + q) * schedule.period for q in range(rounds) for turn in turns])
    seen = number < samples.count
    index, number, begins = index[seen], number[seen], begins[seen]
    held = [_held(graph, machine, turn, time) for turn, time in zip(turns, lengths, strict=True)]
    slack = _slack(schedule, lengths, held, rounds)
    takes = np.array([int(time > slack) + int(own > slack) for time, own in zip(lengths, held, strict=True)])
    shift = np.array([turn.shift for turn in turns], dtype=np.int64)[index]
    ties = (index, number) if schedule.earlier_first else (number, index, shift)
    order = np.lexsort((*ties, takes[index], instants(begins, slack)))
    index, number, begins = index[order], number[order], begins[order]
    dropped = _drops(samples, machine, schedule, lengths, _slack(schedule, lengths, held, 1)).gather(index)
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
        initial=tuple((int(samples.first[value]), memory) for value, memory in schedule.initial),
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


def _slack(schedule: ModuloSchedule, lengths: list[Number], held: list[Number], rounds: int) -> float:
    """Return the tolerance below which two instants are equal: for rounding, if times are not exact integers.

    It is less than the time of any step, so that no instant contains a whole step.
    """
    ends = (schedule.start_of(turn) + length for turn, length in zip(schedule.turns, lengths, strict=True))
    last = max(ends, default=0) + (rounds - 1) * schedule.period
    exact = isinstance(schedule.period, int) and all(isinstance(time, int) for time in lengths)
    if exact and last <= LARGEST_SIZE:
        return 0
    shortest = min((time for time in (*lengths, *held) if time > ROUNDING * last), default=last)
    return min(INSTANT * float(last), float(shortest) / 2)


def _drops(samples: Samples, machine: Machine, schedule: ModuloSchedule, lengths: list[Number], slack: float) -> Ragged:
    """Return the values that each turn drops: a sample's last use of a value in a memory drops it there."""
    graph, turns = samples.graph, schedule.turns
    begins = instant_array([schedule.start_of(turn) for turn in turns])
    ends = instant_array([begin + time for begin, time in zip(begins.tolist(), lengths, strict=True)])
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


def modulo_of(graph: TaskGraph, machine: Machine, tasks: PipelineTasks, pattern: Pattern) -> ModuloSchedule:
    """Return the turns of a pattern of stages: the layers of an operation run one after the other from its start on.

    Parameters
    ----------
    graph, machine
        The graph of one micro-batch, and the cluster.
    tasks : PipelineTasks
        The indices of its tasks.
    pattern : Pattern

    Raises
    ------
    OptionError
        For a device that cannot run a layer.
    """
    stages = pattern.stages
    memory = [machine.processors[stage.device].memory for stage in stages]

    def tasks_of(beat: Beat) -> list[int]:
        return tasks.of(Pass(beat.phase, beat.stage, 0), stages[beat.stage])

    def rank(beat: Beat) -> tuple[bool, int, int, bool]:
        """Return a sort key in which beats follow those whose results they read."""
        is_back, layer = beat.phase is not Phase.F, stages[beat.stage].layers[0]
        return is_back, -layer if is_back else layer, beat.phase, beat.is_copy

    homes = {task: memory[beat.stage] for beat in pattern.beats if not beat.is_copy for task in tasks_of(beat)}

    def turns_of(beat: Beat) -> Iterator[Turn]:
        """Yield a run of each layer, or a copy of each written value to each other memory in which a task reads it."""
        for task in tasks_of(beat):
            if not beat.is_copy:
                yield Turn(StepKind.RUN, task, beat.start, beat.shift, on=stages[beat.stage].device)
                continue
            source = memory[beat.stage]
            for value in graph.writes[task].tolist():
                readers = {homes[reader] for reader in graph.readers[value].tolist() if reader in homes}
                for target in sorted(readers - {source}):
                    yield Turn(StepKind.COPY, value, beat.start, beat.shift, source=source, target=target)

    turns: list[Turn] = []
    for beat in sorted(pattern.beats, key=rank):
        begin = beat.start
        for turn in turns_of(beat):
            turns.append(turn._replace(start=begin))
            begin += 0 if beat.is_copy else run_time(graph, machine, turn.item, turn.on)
    initial = initial_of(graph, machine, Orders(stages, ()))
    return ModuloSchedule(graph, pattern.period, tuple(turns), initial, earlier_first=True)
