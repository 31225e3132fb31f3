"""States of the dynamic programs on a chain: the first stage of a segment, and whether x_i must stay.

A segment (i, l) begins with x_i. If the previous stage was saved by a variant whose backward reads its output, x_i is
*held*: it must stay until that backward. Otherwise it is *free*, and is dropped when the segment itself no longer needs
it. Both count bytes beyond x_i, so dropping a free x_i returns bytes. If the two do not differ, they are one state. A
chain whose backwards read their inputs has one state per stage.

In a state, each variant of the stage is an option to save it (or, for i = l, to process it alone). The option
determines the state of the rest of the segment: x_{i+1} is held if the variant's backward reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from remat.plugin import BoolArray, Chain, IntArray, Number, NumberArray


@dataclass(frozen=True)
class Whole:
    """The schedule that saves every stage once, by its fastest variant.

    Attributes
    ----------
    ways : tuple of int
        Option taken in each stage.
    need : int
        Bytes beyond x_0.
    time : int or float
    """

    ways: tuple[int, ...]
    need: int
    time: Number


@dataclass(frozen=True, kw_only=True)
class States:
    """S states in ascending order of their stages, and W options in the order of the states.

    Attributes
    ----------
    length : int
    stage : (S,) int64
        First stage of the state's segments; the loss is stage L.
    free, held : (L+1,) int64
        State of a segment that begins with each stage, with x_i free or held.
    start : (S+1,) int64
        Options of state k: ``start[k] .. start[k+1] - 1``. The loss has one option, which is never saved.
    inner : (W,) int64
        State of the inner segment (i+1, l); -1 for the loss.
    kept : (W,) int64
        Bytes beyond x_i that are held while the inner segment runs, minus those of a dropped x_i.
    save_need, backward_need : (W,) int64
        Bytes beyond x_i while the forward runs (without the live gradient), and the backward (including gradients).
    leaf_need : (W,) int64
        Bytes beyond x_i of the segment (i, i).
    time, leaf_time : (W,)
        Forward and backward; for the segment (i, i), the forward only if the backward reads its results.
    forward_task, backward_task : (W,) int64
        Indices in the task graph; -1 for the loss, which has no forward.
    leaf_forward : (W,) bool
    """

    length: int
    stage: IntArray
    free: IntArray
    held: IntArray
    start: IntArray
    inner: IntArray
    kept: IntArray
    save_need: IntArray
    backward_need: IntArray
    leaf_need: IntArray
    time: NumberArray
    leaf_time: NumberArray
    forward_task: IntArray
    backward_task: IntArray
    leaf_forward: BoolArray

    @staticmethod
    def of(chain: Chain) -> States:
        """Compute states and options (O(L + alternatives))."""
        length, alternatives = chain.length, chain.alternatives
        pair = (_Ways.of(chain, held=False), _Ways.of(chain, held=True))
        start = alternatives.start
        different = np.zeros(length + 1, dtype=bool)
        unlike = np.flatnonzero(pair[0].differs(pair[1]))
        different[pair[0].stage[unlike]] = True
        # x_i is held only if some backward variant of the previous stage reads its output; x_0 never is.
        different[0] = False
        reading = np.zeros(length, dtype=bool)
        reading[alternatives.stage[alternatives.reads_output]] = True
        different[1:] &= reading
        stage = np.repeat(np.arange(length + 1, dtype=np.int64), 1 + different)
        free = np.arange(length + 1, dtype=np.int64) + np.concatenate(([0], np.cumsum(different[:-1], dtype=np.int64)))
        held = free + different
        counts = np.append(np.diff(start), 1)[stage]
        way_start = np.concatenate(([0], np.cumsum(counts)))
        # Index of each option in the arrays of `_Ways`: alternatives first, the loss last.
        source = np.repeat(np.append(start[:-1], start[-1])[stage] - way_start[:-1], counts) + np.arange(way_start[-1])
        is_held = np.repeat(np.arange(len(stage)) != free[stage], counts)

        def taken(name: str) -> np.ndarray:
            column: np.ndarray = np.where(is_held, getattr(pair[1], name)[source], getattr(pair[0], name)[source])
            return column

        after = np.append(np.where(alternatives.reads_output, held[alternatives.stage + 1], -1), -1)
        otherwise = np.append(free[alternatives.stage + 1], -1)
        inner = np.where(after < 0, otherwise, after)[source]
        own = {name: taken(name) for name in _Ways.FIELDS}
        return States(length=length, stage=stage, free=free, held=held, start=way_start, inner=inner, **own)

    @property
    def saved_through(self) -> int:
        """Number of options that can be saved; those of the loss follow them."""
        return int(self.start[self.free[self.length]])

    def ways(self, state: int) -> range:
        """Return the options of a state."""
        return range(int(self.start[state]), int(self.start[state + 1]))

    def quickest(self) -> IntArray:
        """Return the fastest option of each state; ties prefer the one that keeps the fewest bytes."""
        order = np.lexsort((self.backward_need, self.kept, self.time))
        first = np.full(len(self.stage), -1, dtype=np.int64)
        owner = np.repeat(np.arange(len(self.stage)), np.diff(self.start))
        first[owner[order[::-1]]] = order[::-1]
        return first

    def whole(self) -> Whole:
        """Return the schedule without recomputation (O(L))."""
        quickest = self.quickest().tolist()
        state, held, need = int(self.free[0]), 0, 0
        ways = []
        time: Number = 0
        while self.stage[state] < self.length:
            way = quickest[state]
            own = max(int(self.save_need[way]), int(self.backward_need[way]))
            # The need of the backward includes the values kept by its own stage (and a dropped x_i).
            need = max(need, held + own)
            held += int(self.kept[way])
            time += self.time[way].item()
            ways.append(way)
            state = int(self.inner[way])
        loss = int(self.start[state])
        return Whole(tuple(ways), max(need, held + int(self.backward_need[loss])), time + self.time[loss].item())


@dataclass(frozen=True)
class _Ways:
    """Needs of each alternative if x_i is free, or held; the loss last."""

    stage: IntArray
    kept: IntArray
    save_need: IntArray
    backward_need: IntArray
    leaf_need: IntArray
    time: NumberArray
    leaf_time: NumberArray
    forward_task: IntArray
    backward_task: IntArray
    leaf_forward: BoolArray

    FIELDS = (
        *("kept", "save_need", "backward_need", "leaf_need", "time", "leaf_time"),
        *("forward_task", "backward_task", "leaf_forward"),
    )

    @staticmethod
    def of(chain: Chain, *, held: bool) -> _Ways:
        ways, length = chain.alternatives, chain.length
        i = ways.stage
        x, y, after = chain.activation_size[i], chain.gradient_size[i], chain.gradient_size[i + 1]
        following = chain.activation_size[i + 1]
        saves = ways.reads_saved & chain.saves
        saved = np.where(saves, ways.saved_size, 0)
        output = np.where(ways.reads_output, following, 0)
        # A free input that the backward does not read is dropped after the forward, otherwise with the backward.
        spent = np.where(ways.reads_input | held, 0, x)
        added, made_y, loss_y = following + saved, y, int(chain.gradient_size[-1])
        if chain.in_place:
            added = np.maximum(0, added - spent)
            given = np.where(ways.reads_input, 0 if held else x, 0)
            made_y = np.maximum(0, y - (after + saved + output + given))
            loss_y = max(0, loss_y - (0 if held else int(chain.activation_size[-1])))
        save_need = added + np.where(saves, ways.saving_workspace, chain.forward_workspace[i])
        backward_need = output + saved + after + made_y + ways.backward_workspace - spent
        forward = np.where(saves, ways.saving_forward_time, chain.forward_time[i])
        leaf_forward = saves | ways.reads_output
        leaf_need = np.maximum(backward_need, np.where(leaf_forward, save_need + after, 0))
        loss_need = loss_y + chain.loss_workspace
        loss_time = np.array([chain.loss_time], dtype=forward.dtype if length else None)
        count, loss = len(i), length + (len(i) if chain.saves else 0)
        number = np.arange(count, dtype=np.int64)
        return _Ways(
            stage=np.append(i, length),
            kept=np.append(following + saved - spent, 0),
            save_need=np.append(save_need, 0),
            backward_need=np.append(backward_need, loss_need),
            leaf_need=np.maximum(0, np.append(leaf_need, loss_need)),
            time=np.concatenate((forward + ways.backward_time, loss_time)),
            leaf_time=np.concatenate((np.where(leaf_forward, forward, 0) + ways.backward_time, loss_time)),
            forward_task=np.append(np.where(saves, length + number, i), -1),
            backward_task=np.append(loss + 1 + number, loss),
            leaf_forward=np.append(leaf_forward, False),
        )

    def differs(self, other: _Ways) -> BoolArray:
        """Whether an option's needs differ from those in another state."""
        names = ("kept", "save_need", "backward_need", "leaf_need")
        unlike: BoolArray = np.logical_or.reduce([getattr(self, name) != getattr(other, name) for name in names])
        return unlike


def unfold(
    states: States,
    room: int,
    choose: Callable[[int, int, int], tuple[int, int, int]],
    segment: tuple[int, int] | None = None,
) -> list[int]:
    """Return the runs (task indices) that a table's choices describe, from the whole chain down (without recursion).

    Parameters
    ----------
    states : States
    room : int
        Memory of the whole chain, in the table's unit (bytes or rows).
    choose : callable
        ``choose(state, last, room)`` returns (split, option, inner memory). `split` is the stage at which the segment
        is split, or -1 if it is saved or is a single stage. The memory is that of the segment that begins there.
    segment : (int, int), optional
        State and last stage of the segment to begin with, instead of the whole chain.
    """
    runs: list[int] = []
    forward, backward = states.forward_task.tolist(), states.backward_task.tolist()
    stack = [(*(segment or (int(states.free[0]), states.length)), room, -1)]
    while stack:
        state, last, room, finished = stack.pop()
        if finished >= 0:
            runs.append(backward[finished])
            continue
        first = int(states.stage[state])
        split, way, inside = choose(state, last, room)
        if split >= 0:
            runs.extend(range(first, split))
            stack.append((state, split - 1, room, -1))
            stack.append((int(states.free[split]), last, inside, -1))
        elif first == last:
            if states.leaf_forward[way]:
                runs.append(forward[way])
            runs.append(backward[way])
        else:
            runs.append(forward[way])
            stack.append((state, last, 0, way))
            stack.append((int(states.inner[way]), last, inside, -1))
    return runs
