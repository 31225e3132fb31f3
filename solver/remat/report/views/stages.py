"""The fate of each stage of a chain: kept, checkpointed, recomputed or offloaded, and its number of runs."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from remat.graph.taskgraph import BoolArray, IntArray
from remat.report.views.lifetimes import Lives, lives_of
from remat.report.views.task_index_ranges import ChainLayout
from remat.schedule.steps import StepKind
from remat.solving.result import Result


class Fate(enum.IntEnum):
    """Treatment of a value between its forward and its backward."""

    KEPT = 0
    CHECKPOINT = 1
    RECOMPUTED = 2
    OFFLOADED = 3

    @property
    def label(self) -> str:
        """The name that a legend shows."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a chain; long chains are grouped into runs of neighbours.

    Attributes
    ----------
    first : (groups + 1,) int64
        The first stage of each group, and the end (exclusive); stage 0 is the input.
    sizes : (groups, fates) int64
        Bytes of the states and saved values of each group, by their fate.
    runs : (groups,) int64
        Runs of a stage's forward: the maximum in each group.
    recomputations : int
        Forward runs beyond one for each stage that runs at all.
    levels : (groups, memories) int64
        Number of checkpoint stays of the group's states in each memory. In the working memory, a stay counts if more
        than one forward starts from it; in other memories, every stay counts.
    checkpoints : (memories,) int64
        Number of different states that are ever checkpoints in each memory.
    """

    first: IntArray
    sizes: IntArray
    runs: IntArray
    recomputations: int
    levels: IntArray
    checkpoints: IntArray

    @property
    def totals(self) -> IntArray:
        """Bytes of each fate."""
        totals: IntArray = self.sizes.sum(axis=0)
        return totals


def stages_of(result: Result, layout: ChainLayout, most: int) -> Stages:
    """Return the fate of each stage's state x{i} and saved values s{i}; O(events log events).

    A value that is copied out of the working memory is *offloaded*. A state from which more than one forward starts
    during one stay is a *checkpoint*. Any other value is *kept* if one forward makes it, and *recomputed* if more do.

    Parameters
    ----------
    result : Result
        The result of a chain or an adjoint, with a schedule.
    layout : ChainLayout
    most : int
        Maximum number of groups; longer chains have more stages per group.
    """
    assert result.columns is not None
    graph, steps, length = result.graph, result.columns, layout.length
    stage_of_task = layout.stages(graph)
    tasks = steps.item[steps.kind == StepKind.RUN]
    forwards = tasks[tasks < layout.loss]
    runs = np.bincount(stage_of_task[forwards], minlength=length + 1)
    offloaded = _offloaded(result)
    again = runs > 1
    fate = np.where(again, Fate.RECOMPUTED, Fate.KEPT)
    states = fate.copy()
    stored = _checkpoints(result, layout)
    states[stored.value[stored.memory == result.machine.processors[0].memory]] = Fate.CHECKPOINT
    states[offloaded[: length + 1]] = Fate.OFFLOADED
    saved_stage = stage_of_task[length : layout.loss]
    ran = np.bincount(tasks, minlength=len(graph.tasks))[length : layout.loss] > 0
    saved = np.where(offloaded[length + 1 : length + 1 + len(saved_stage)], Fate.OFFLOADED, fate[saved_stage])
    stage = np.concatenate((np.arange(length + 1), saved_stage[ran]))
    kind = np.concatenate((states, saved[ran]))
    size = np.concatenate((graph.size[: length + 1], graph.size[length + 1 : length + 1 + len(ran)][ran]))
    group = -(-(length + 1) // most)
    groups = -(-(length + 1) // group)
    sizes = np.zeros((groups, len(Fate)), dtype=np.int64)
    np.add.at(sizes, (stage // group, kind), size)
    first = np.minimum(np.arange(groups + 1) * group, length + 1)
    memories = len(result.machine.memories)
    levels = np.zeros((groups, memories), dtype=np.int64)
    np.add.at(levels, (stored.value // group, stored.memory), 1)
    different = np.unique(np.column_stack((stored.memory, stored.value)), axis=0)[:, 0]
    return Stages(
        first=first,
        sizes=sizes,
        runs=np.maximum.reduceat(runs, first[:-1]),
        recomputations=int(np.maximum(runs - 1, 0).sum()),
        levels=levels,
        checkpoints=np.bincount(different, minlength=memories),
    )


def _offloaded(result: Result) -> BoolArray:
    """Whether each value is ever copied out of the working memory."""
    steps = result.columns
    assert steps is not None
    out = (steps.kind == StepKind.COPY) & (steps.source == result.machine.processors[0].memory)
    found = np.zeros(len(result.graph.values), dtype=bool)
    found[steps.item[out]] = True
    return found


def _checkpoints(result: Result, layout: ChainLayout) -> Lives:
    """Return the stays of states from which forwards start more than once, and those in other memories."""
    steps, report = result.columns, result.report
    assert steps is not None
    assert report is not None
    every = lives_of(result.graph, result.machine, steps, report)
    every = every.of(every.value <= layout.length)
    here = every.memory == result.machine.processors[0].memory
    lives = every.of(here)
    runs = np.flatnonzero((steps.kind == StepKind.RUN) & (steps.item < layout.loss))
    state = layout.stages(result.graph)[steps.item[runs]] - 1
    # A forward starts from the stay that began last; ranks replace times to order the stays of a state.
    times, rank = np.unique(np.concatenate((lives.begin, report.start[runs])), return_inverse=True)
    born, asked = rank[: len(lives.begin)], rank[len(lives.begin) :]
    count = len(times) + 1
    found = np.searchsorted(lives.value * count + born, state * count + asked, side="right") - 1
    starts = np.bincount(np.maximum(found, 0), minlength=len(lives.value))
    chosen = ~here
    chosen[here] = starts > 1
    return every.of(chosen)
