"""Floating schedules of a chain: the class of `rotor-float`, and the minimum memory of such a schedule.

A segment (s, t, l) begins with x_s and y_{l+1} in memory and runs the backwards l..t (s <= t <= l; L is the loss).
After these, no task reads its x_s. It is processed by one of these options:

- *leaf*, s = t = l: the forward that the backward needs, then the backward.
- *save*, s = t < l: the saving forward of s, (s+1, s+1, l), the backward of s. The saved values stay in between.
- *move*, s < t: forward s, x_s is dropped, (s+1, t, l). The checkpoint floats to a stage where it costs less memory.
- *split* at j in t+1..l: forward s, x_s stays; (s+1, j, l), then (s, t, j-1).
- *tape* at j in max(t, s+1)..l-1: forwards s..j-1, x_s stays. The saving forward of j runs, x_j is dropped, and the
  other inputs of the backward of j stay. (j+1, j+1, l) follows, then (s, t, j) with that *tape*: its leaf (j, j, j) is
  the backward alone.

Persistent schedules (`rotor`) are those in which every checkpoint moves to t at once, and every tape keeps its input.
Moving is the floating checkpoint of Beaumont et al. 2019, "Optimal checkpointing for heterogeneous chains" (section on
non-persistent schedules). Keeping tapes without their inputs is an extension of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from remat.plugin import Chain, IntArray, NumberArray
from remat_algorithms.chain.segments import RunList, Segments

FLOATING = "floating schedules"
"""Name of the class: the schedules that the options of this module generate."""

LEAF, SAVE, MOVE, SPLIT, TAPE = range(5)


@dataclass(frozen=True)
class Part:
    """A segment to process: (first, target, last), and whether the tape of the last stage exists."""

    first: int
    target: int
    last: int
    taped: int


@dataclass(frozen=True)
class Needs:
    """Bytes and times of the options; all bytes include the segment's x_s.

    Attributes
    ----------
    length : int
    checkpoint : (L+1,) int64
        x_s: held during a split.
    saving : (L,) int64
        Held by a save at s in addition to x_{s+1}: x_s (if a later task reads it) and s_s.
    tape : (L,) int64
        Held by a tape of j in addition to x_{j+1}: s_j.
    live : (2, L+1) int64
        Bytes outside the segment while a forward of (s, t, l) runs: y_{l+1}, and with a tape also its values.
    move_need, split_need, save_need, backward_need, leaf_need, tape_need
        Bytes during the runs of an option, without `live`: a forward whose input is dropped, or stays; the saving
        forward; the backward, complete; the leaf without and with its tape, (2, L+1); the saving forward that leaves a
        tape, without x_s.
    forward_time, save_time, backward_time
    plain : bool
        Whether every backward reads all possible inputs, and nothing runs in place. These bytes are then exact, and the
        class is well defined. Otherwise they are upper bounds.
    """

    length: int
    checkpoint: IntArray
    saving: IntArray
    tape: IntArray
    live: IntArray
    move_need: IntArray
    split_need: IntArray
    save_need: IntArray
    backward_need: IntArray
    leaf_need: IntArray
    forward_time: NumberArray
    save_time: NumberArray
    backward_time: NumberArray
    leaf_time: NumberArray
    plain: bool

    @staticmethod
    def of(chain: Chain, segments: Segments) -> Needs:
        """Compute the needs of a chain (O(L))."""
        x, length = chain.activation_size, segments.length
        saved = np.where(segments.saves, chain.saved_size, 0)
        output = np.where(chain.reads_output, x[1:], 0)
        live = np.tile(segments.gradient[1:], (2, 1))
        live[1, :-1] += saved + output
        backward = segments.backward_need + x
        return Needs(
            length=length,
            checkpoint=x,
            saving=x[:-1] + segments.kept - x[1:],
            tape=saved,
            live=live,
            move_need=segments.next_need,
            split_need=segments.first_need + x[:-1],
            save_need=segments.save_need + x[:-1],
            backward_need=backward,
            leaf_need=np.stack((segments.leaf_need + x, np.maximum(backward, x))),
            forward_time=segments.forward_time,
            save_time=segments.save_time,
            backward_time=segments.backward_time,
            leaf_time=np.stack((segments.leaf_time, segments.backward_time)),
            plain=bool((chain.reads_input & chain.reads_output & chain.reads_saved).all()) and not chain.in_place,
        )

    def sweep_need(self, first: int) -> IntArray:
        """Return the bytes of the forwards first..j-1 with x_first held, for j = first+1..L (without `live`)."""
        needs = self.move_need[first:] + self.checkpoint[first]
        needs[:1] = self.split_need[first : first + 1]
        highest: IntArray = np.maximum.accumulate(needs)
        return highest


@dataclass(frozen=True)
class LeastFloating:
    """N[taped, s, t, l]: the minimum bytes, x_s included, in which segment (s, t, l) can be processed."""

    needs: Needs
    least: IntArray

    @staticmethod
    def of(needs: Needs, *, stopped: Callable[[], bool] = lambda: False) -> LeastFloating | None:
        """Fill the table: O(L^4) time, compiled for long chains, O(L^3) memory; None if stopped before the end."""
        count = needs.length + 1
        table = LeastFloating(needs, np.zeros((2, count, count, count), dtype=np.int64))
        if needs.length >= COMPILED_FROM:
            from remat_algorithms.chain.floating import kernel

            given = {name: np.ascontiguousarray(getattr(needs, name)) for name in kernel.Least._fields[1:]}
            fill = kernel.LEAST_COLUMN.bind(kernel.Least(table.least, **given))
            for last in range(count):
                if stopped():
                    return None
                fill(last)
            return table
        for last in range(count):
            if stopped():
                return None
            for part in parts_until(last):
                ways = table.ways(part)
                table.least[part.taped, part.first, part.target, part.last] = min(need for _, _, need in ways)
        return table

    def ways(self, part: Part) -> Iterator[tuple[int, int, int]]:
        """Yield (option, j, bytes) of every option for a part."""
        n, least = self.needs, self.least
        s, t, e, taped = part.first, part.target, part.last, part.taped
        live = int(n.live[taped, e])
        if s == e:
            yield LEAF, s, int(n.leaf_need[taped, s])
            return
        if s == t:
            inner = int(least[taped, s + 1, s + 1, e] + n.saving[s])
            yield SAVE, s, max(int(n.save_need[s]) + live, int(n.backward_need[s]), inner)
        else:
            yield MOVE, s, max(int(n.move_need[s]) + live, int(least[taped, s + 1, t, e]))
        held, forward = int(n.checkpoint[s]), int(n.split_need[s]) + live
        for j in range(t + 1, e + 1):
            yield SPLIT, j, max(forward, int(least[taped, s + 1, j, e]) + held, int(least[0, s, t, j - 1]))
        sweep = n.sweep_need(s)
        for j in range(max(t, s + 1), e):
            run = max(int(sweep[j - s - 1]), held + int(n.save_need[j])) + live
            inner = int(least[taped, j + 1, j + 1, e] + n.tape[j]) + held
            yield TAPE, j, max(run, inner, int(least[1, s, t, j]))

    @property
    def whole(self) -> int:
        """Minimum bytes for the whole chain, x_0 included."""
        return int(self.least[0, 0, 0, -1])

    def schedule(self, runs: RunList) -> None:
        """Append a schedule that needs at most `whole`: each part takes the first option that fits."""
        n = self.needs

        def choose(part: Part, room: int) -> tuple[int, int, int]:
            way, j = next((way, j) for way, j, need in self.ways(part) if need <= room)
            return way, j, room - held_meanwhile(n, part, way, j)

        follow_floating(runs, n.length, self.whole, choose)


COMPILED_FROM = 24
"""Minimum number of stages for compiled kernels."""


def parts_until(last: int) -> Iterator[Part]:
    """Yield all parts that end at `last`, each after those on which its options depend."""
    for first in range(last, -1, -1):
        for target in range(last, first - 1, -1):
            yield Part(first, target, last, 0)
            yield Part(first, target, last, 1)


def held_meanwhile(needs: Needs, part: Part, way: int, j: int) -> int:
    """Return the bytes that an option holds outside its first inner part while that part runs."""
    if way == SAVE:
        return int(needs.saving[part.first])
    if way == SPLIT:
        return int(needs.checkpoint[part.first])
    if way == TAPE:
        return int(needs.checkpoint[part.first] + needs.tape[j])
    return 0


def follow_floating(runs: RunList, length: int, room: int, choose: Callable[[Part, int], tuple[int, int, int]]) -> None:
    """Append the schedule that the choices describe, from the whole chain down (without recursion).

    Parameters
    ----------
    runs : RunList
    length : int
    room : int
        Memory of the whole chain, in the table's unit (bytes or rows).
    choose : callable
        ``choose(part, room)`` returns the option, its j, and the memory of its first inner part.
    """
    stack: list[tuple[Part | int, int]] = [(Part(0, 0, length, 0), room)]
    while stack:
        part, room = stack.pop()
        if isinstance(part, int):
            runs.backward(part)
            continue
        s, t, e, taped = part.first, part.target, part.last, part.taped
        way, j, inner = choose(part, room)
        if way == LEAF:
            if taped:
                runs.backward(s)
            else:
                runs.leaf(s)
        elif way == SAVE:
            runs.save(s)
            stack += [(s, 0), (Part(s + 1, s + 1, e, taped), inner)]
        elif way == MOVE:
            runs.sweep(s, s + 1)
            stack.append((Part(s + 1, t, e, taped), inner))
        elif way == SPLIT:
            runs.sweep(s, s + 1)
            stack += [(Part(s, t, j - 1, 0), room), (Part(s + 1, j, e, taped), inner)]
        else:
            runs.sweep(s, j)
            runs.save(j)
            stack += [(Part(s, t, j, 1), room), (Part(j + 1, j + 1, e, taped), inner)]
