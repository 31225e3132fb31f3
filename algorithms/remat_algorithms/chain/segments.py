"""Needs and costs of the segments of a chain, the common basis of the dynamic programs over segments.

Stages are 0..L-1 and the loss is stage L. A segment (i, l) processes the backwards of stages i..l (and the loss, if l =
L), given x_i and, unless l = L, the gradient y_{l+1}. Bytes are counted beyond x_i.

A *persistent* schedule keeps a stored value until the backward that needs it. A segment therefore has two options. In
the first, its first stage is *saved*: the stage's forward keeps the values that the backward needs, then segment (i+1,
l) follows, then the backward. In the second, it is *split* at j: plain forwards from x_i to x_j, segment (j, l), then
segment (i, j-1), again from x_i. Beaumont et al. 2019, "Optimal checkpointing for heterogeneous chains", eqs. 1-4, with
the gradient that is actually live (y_{l+1}) instead of a bound on it.

`Segments` describes each stage's first variant. Its needs are upper bounds if a backward does not read its input but
the previous stage's backward does; `Segments.states` distinguishes these cases and the variants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import BoolArray, Chain, IntArray, Number, NumberArray
from remat_algorithms.chain.states import States

COMPILED_FROM = 60
"""Number of stages above which compiled kernels are used; below, their start-up costs more than they save."""

PERSISTENT = "memory-persistent schedules"
"""Class of schedules: a stored value stays until the backward that needs it.

A stage's input stays until the stage's backward.
"""


@dataclass(frozen=True)
class Segments:
    """Derived sizes and times of a chain of L stages; index L is the loss in arrays of length L+1.

    Attributes
    ----------
    length : int
    kept : (L,) int64
        Bytes added by saving stage i: x_{i+1} and its saved values, minus an x_i that no later task reads (the result
        may be negative).
    activation : (L+1,) int64
        x_i: added by a split at i.
    gradient : (L+2,) int64
        Bytes of the gradient that is live while segment (i, l) runs, at index l+1; 0 for l = L.
    save_need : (L,) int64
        Bytes while the saving forward of stage i runs, without the live gradient.
    first_need, next_need : (L,) int64
        Bytes while the plain forward of stage k runs as the first, or a later, one of a sweep, also without it.
    backward_need : (L+1,) int64
        Bytes while the backward of stage i (the loss, for i = L) runs, including gradients.
    save_time : (L,)
        Time of the forward that a stage's backward needs.
    leaf_forward : (L,) bool
        Whether the backward of stage i needs a separate forward at all.
    saves : (L,) bool
        Whether that forward is the saving one (Fe).
    forward_time, backward_time : (L,) and (L+1,)
    default_way : (L,) int64
        Index of each stage's first variant among the variants of all stages.
    ways : int
        Number of all variants.
    chain : Chain
    whole_class : bool
        Whether the needs above are exact for every persistent schedule. They are upper bounds if some backward does not
        read its input but the previous backward reads it as its output. Whether that input may be dropped early then
        depends on the origin of the segment.
    """

    length: int
    kept: IntArray
    activation: IntArray
    gradient: IntArray
    save_need: IntArray
    first_need: IntArray
    next_need: IntArray
    backward_need: IntArray
    save_time: NumberArray
    leaf_forward: BoolArray
    saves: BoolArray
    forward_time: NumberArray
    backward_time: NumberArray
    whole_class: bool
    default_way: IntArray
    ways: int
    chain: Chain

    @cached_property
    def states(self) -> States:
        """The states and options of the dynamic programs, including variants."""
        return States.of(self.chain)

    @staticmethod
    def of(chain: Chain) -> Segments:
        """Derive the sizes from a chain (O(L))."""
        x, y, s = chain.activation_size, chain.gradient_size, chain.saved_size
        saves = chain.reads_saved & chain.saves
        saved = np.where(saves, s, 0)
        output = np.where(chain.reads_output, x[1:], 0)
        workspace = np.where(saves, chain.saving_workspace, chain.forward_workspace)
        added, backward_y, save_added = x[1:], y[:-1], x[1:] + saved
        loss_y = int(y[-1])
        # Whether no task outside the segments that begin at x_i reads it: the previous backward does not read its
        # output.
        last_use = np.concatenate(([True], ~chain.reads_output))
        # Inputs that their own backward does not read are dropped after the saving forward.
        spent = np.where(~chain.reads_input & last_use[:-1], x[:-1], 0)
        if chain.in_place:
            # The later forwards of a sweep drop their inputs; a backward drops all its inputs.
            added = np.maximum(0, x[1:] - x[:-1])
            save_added = np.maximum(0, save_added - spent)
            freed = y[1:] + saved + output + np.where(chain.reads_input & last_use[:-1], x[:-1], 0)
            backward_y = np.maximum(0, y[:-1] - freed)
            loss_y = max(0, loss_y - (int(x[-1]) if last_use[-1] else 0))
        return Segments(
            length=chain.length,
            kept=x[1:] + saved - spent,
            activation=x,
            gradient=np.concatenate((y, [0])),
            save_need=save_added + workspace,
            first_need=x[1:] + chain.forward_workspace,
            next_need=x[:-1] + added + chain.forward_workspace,
            backward_need=np.append(
                output + saved + y[1:] + backward_y + chain.backward_workspace - spent, loss_y + chain.loss_workspace
            ),
            save_time=np.where(saves, chain.saving_forward_time, chain.forward_time),
            leaf_forward=saves | chain.reads_output,
            saves=saves,
            forward_time=chain.forward_time,
            backward_time=np.append(chain.backward_time, np.array(chain.loss_time, dtype=chain.backward_time.dtype)),
            whole_class=not (~chain.reads_input & ~last_use[:-1]).any(),
            default_way=chain.alternatives.start[:-1],
            ways=int(chain.alternatives.start[-1]),
            chain=chain,
        )

    @property
    def leaf_time(self) -> NumberArray:
        """Time of the segment (i, i), for i = 0..L."""
        forwards = np.where(self.leaf_forward, self.save_time, 0)
        time: NumberArray = self.backward_time + np.append(forwards, np.zeros(1, dtype=forwards.dtype))
        return time

    @property
    def leaf_need(self) -> IntArray:
        """Bytes needed by the segment (i, i), for i = 0..L."""
        forwards = np.where(self.leaf_forward, self.save_need + self.gradient[1:-1], 0)
        # x_i itself is present when the segment begins, for any reads of its backward.
        need: IntArray = np.maximum(0, np.maximum(self.backward_need, np.append(forwards, 0)))
        return need

    def sweep_need(self, first: int) -> IntArray:
        """Return the bytes of the sweeps from stage `first` to j, for j = first+1..L, without the live gradient."""
        needs = self.next_need[first:].copy()
        needs[:1] = self.first_need[first : first + 1]
        highest: IntArray = np.maximum.accumulate(needs)
        return highest

    def sweep_time(self, first: int) -> NumberArray:
        """Return the time of the sweeps from stage `first` to j, for j = first+1..L."""
        return np.cumsum(self.forward_time[first:])

    def saved_whole_need(self) -> int:
        """Return the bytes beyond x_0 if every stage is saved, without recomputation."""
        held = np.concatenate(([0], np.cumsum(self.kept)))
        forward = held[:-1] + self.save_need
        # The need of a backward includes the values kept by its own stage (and a dropped x_i).
        backward = held + self.backward_need
        return int(max(forward.max(initial=0), backward.max()))

    def time_without_recompute(self) -> Number:
        """Return the time if every stage is saved."""
        total = np.concatenate((self.save_time, self.backward_time))
        return total.sum().item() if total.dtype == np.int64 else float(np.cumsum(total)[-1])


class RunList:
    """Collects the runs of a chain schedule as indices of its task graph (first variants)."""

    def __init__(self, segments: Segments, *, has_saving: bool) -> None:
        self._length = segments.length
        self._leaf_forward = segments.leaf_forward.tolist()
        self._way = segments.default_way.tolist()
        stages = range(segments.length)
        saving = (segments.length + segments.default_way).tolist()
        self._save = [saving[i] if segments.saves[i] else i for i in stages]
        self._loss = segments.length + (segments.ways if has_saving else 0)
        self.tasks: list[int] = []

    def sweep(self, first: int, end: int) -> None:
        """Run the plain forwards of stages first..end-1."""
        self.tasks.extend(range(first, end))

    def save(self, stage: int) -> None:
        """Run the forward that the stage's backward needs."""
        self.tasks.append(self._save[stage])

    def backward(self, stage: int) -> None:
        """Run the backward of a stage (the loss, for stage L)."""
        self.tasks.append(self._loss if stage == self._length else self._loss + 1 + self._way[stage])

    def leaf(self, stage: int) -> None:
        """Run the segment (stage, stage)."""
        if stage < self._length and self._leaf_forward[stage]:
            self.save(stage)
        self.backward(stage)


def follow(runs: RunList, length: int, room: int, choose: Callable[[int, int, int], tuple[int, int]]) -> None:
    """Append the schedule that a table's choices describe, from the whole chain down (without recursion).

    Parameters
    ----------
    runs : RunList
    length : int
        Number of stages.
    room : int
        Memory of the whole chain, in the table's unit (bytes or rows).
    choose : callable
        ``choose(first, last, room)`` returns the split stage of segment (first, last), or `first` if it is saved, and
        the memory of the segment that begins there.
    """
    stack = [(0, length, room, False)]
    while stack:
        first, last, room, saved = stack.pop()
        if saved:
            runs.backward(first)
        elif first == last:
            runs.leaf(first)
        else:
            split, inner = choose(first, last, room)
            if split == first:
                runs.save(first)
                stack.append((first, first, 0, True))
                stack.append((first + 1, last, inner, False))
            else:
                runs.sweep(first, split)
                stack.append((first, split - 1, room, False))
                stack.append((split, last, inner, False))
