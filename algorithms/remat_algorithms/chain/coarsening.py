"""Long chains solved by groups of stages: `rotor`'s fronts on a chain whose stages are these groups.

Groups are cut at small outputs. A group runs as one: forward through all its stages, or saving in all of them, and its
backwards run consecutively. Its intermediate bytes count as the workspace of a stage. A schedule of the groups is
therefore one of the stages, with at most the same memory. Fewer groups are faster to solve; more groups lose less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from remat.plugin import Chain, Context, Number, Problem
from remat_algorithms.chain.minimum_memory import LeastMemory
from remat_algorithms.chain.phase_matrix import Phases
from remat_algorithms.chain.rotor.search import Search
from remat_algorithms.chain.rotor.tick_costs import Costs
from remat_algorithms.chain.segments import Segments

GROUPS = (50, 200, 400, 800)
"""Numbers of groups, tried in sequence."""

SPREAD = 0.5
"""Maximum relative deviation of a group from the mean length, used to cut at a small output."""

ROUNDS = 3
"""Maximum number of retries with less memory, if the schedule takes more than was counted."""


@dataclass(frozen=True)
class Groups:
    """A chain in groups.

    Attributes
    ----------
    stages : int
        Number of stages of the original chain.
    cuts : list of int
        Group i has the stages cuts[i] .. cuts[i+1] - 1.
    chain : Chain
        Chain with one stage per group.
    """

    stages: int
    cuts: list[int]
    chain: Chain

    @staticmethod
    def of(chain: Chain, count: int) -> Groups:
        """Cut a chain, whose stages have no variants, into about `count` groups (O(L))."""
        cuts = [0]
        length = chain.length / count
        x = chain.activation_size.tolist()
        while cuts[-1] < chain.length:
            first = cuts[-1] + max(1, round((1 - SPREAD) * length))
            last = min(chain.length, cuts[-1] + max(1, round((1 + SPREAD) * length)))
            end = min(range(first, last + 1), key=x.__getitem__, default=chain.length)
            cuts.append(chain.length if last == chain.length else end)
        return Groups(chain.length, cuts, _merged(chain, cuts))

    def runs(self, of_groups: Sequence[int]) -> list[int]:
        """Return the tasks of the original chain for runs of groups."""
        groups, stages = self.chain.length, self.stages
        found: list[int] = []
        for task in of_groups:
            kind, group = divmod(task, groups)
            if task == 2 * groups:
                found.append(2 * stages)
            elif kind < 2:
                found += range(kind * stages + self.cuts[group], kind * stages + self.cuts[group + 1])
            else:
                group = task - 2 * groups - 1
                found += range(2 * stages + self.cuts[group + 1], 2 * stages + self.cuts[group], -1)
        return found


def _merged(chain: Chain, cuts: list[int]) -> Chain:
    """Return the chain of the groups."""
    starts, ends = np.array(cuts[:-1]), np.array(cuts[1:])
    saved, forward, saving, backward = (list(column) for column in zip(*_bytes(chain, cuts), strict=True))
    edges = np.array(cuts)
    return Chain(
        forward_time=np.add.reduceat(chain.forward_time, starts),
        saving_forward_time=np.add.reduceat(chain.saving_forward_time, starts),
        backward_time=np.add.reduceat(chain.backward_time, starts),
        activation_size=chain.activation_size[edges],
        saved_size=np.array(saved, dtype=np.int64),
        gradient_size=chain.gradient_size[edges],
        forward_workspace=np.array(forward, dtype=np.int64),
        saving_workspace=np.array(saving, dtype=np.int64),
        backward_workspace=np.array(backward, dtype=np.int64),
        reads_input=chain.reads_input[starts],
        reads_output=chain.reads_output[ends - 1],
        reads_saved=np.ones(len(starts), dtype=bool),
        loss_time=chain.loss_time,
        loss_workspace=chain.loss_workspace,
        static_memory=chain.static_memory,
    )


def _bytes(chain: Chain, cuts: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the bytes that each group saves, and the workspaces of its three tasks without its own input and output."""
    x, y, s = chain.activation_size.tolist(), chain.gradient_size.tolist(), chain.saved_size.tolist()
    own = [chain.forward_workspace.tolist(), chain.saving_workspace.tolist(), chain.backward_workspace.tolist()]
    reads_input, reads_output = chain.reads_input.tolist(), chain.reads_output.tolist()
    for first, end in pairwise(cuts):
        # Stage k maps x[k] to x[k+1]; inner values are x[first+1 .. end-1].
        wanted = [x[k] if reads_input[k] or reads_output[k - 1] else 0 for k in range(first + 1, end)]
        before = np.cumsum([0, *s[first:end]]) + np.cumsum(
            [0, 0, *wanted]
        )  # bytes saved and required before each stage
        saved = int(before[-1])
        forward = saving = backward = 0
        for k in range(first, end):
            inner = x[k] if k > first else 0
            kept = int(before[k - first])
            forward = max(forward, inner + x[k + 1] + own[0][k] - x[end])
            saving = max(saving, kept + inner + s[k] + x[k + 1] + own[1][k] - saved - x[end])
            output = x[k + 1] if reads_output[k] else 0
            there = int(before[k - first + 1]) + output + y[k + 1] + y[k] + own[2][k]
            whole = saved + (x[end] if reads_output[end - 1] else 0) + y[end] + y[first]
            backward = max(backward, there - whole)
        yield saved, max(0, forward), max(0, saving), max(0, backward)


def coarse_schedules(problem: Problem, context: Context) -> Iterator[list[int]]:
    """Yield the runs of improving schedules within the budget, with increasing numbers of groups.

    Notes
    -----
    The fronts of `GROUPS` groups, and O(L).
    """
    chain, budget = problem.chain, problem.budget
    if budget is None or chain.variants is not None or not chain.saves:
        return
    phases = Phases.of(chain)
    times = problem.graph.time
    best: Number | None = None
    for count in GROUPS:
        if 2 * count > chain.length or (best is not None and context.stopped):
            break
        groups = Groups.of(chain, count)
        room = budget - chain.static_memory
        for _ in range(ROUNDS):
            runs = _within(groups, room, times, context)
            if runs is None:
                break
            excess = phases.peak(runs) - (budget - chain.static_memory)
            if excess <= 0:
                time: Number = times[runs].sum().item()
                if best is None or time < best:
                    best = time
                    yield runs
                break
            room -= excess


def _within(groups: Groups, room: int, times: np.ndarray, context: Context) -> list[int] | None:
    """Return the runs of the fastest schedule of the groups within `room` bytes; None without any."""
    segments = Segments.of(groups.chain)
    room -= int(segments.activation[0])
    search = Search(
        segments,
        Costs.of(segments),
        [room],
        context,
        lambda: LeastMemory.of(segments, stopped=lambda: context.stopped),
        lambda runs: times[groups.runs(runs)].sum().item(),
    )
    search.go()
    found = search.found[room]
    return None if found.excess is None else groups.runs(found.runs())
