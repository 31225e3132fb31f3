"""The minimum time of runs and transfers of a loop of equal steps, with or without tapes, over all schedules.

Let states have s bytes, adjoints a bytes, and tapes t >= s bytes. Only bytes, runs and transfers are counted, so each
backward may take place as soon as its tape and adjoint exist. M bytes are quick memories, and a value in a slow one has
been written for w, and is read for r. Let U be M - s - t - a. During a backward, beside its tape and its adjoint:

- If the tape has just been made, the output of that run was in memory, too. So other states and tapes take at most U.
- If the tape was there during the backward before, they take at most M - t - a - t <= U.
- The first backward follows the loss, which turns the last state into an adjoint: at most U + min(s, a).
- If a tape has been read, or an adjoint, they take at most U + max(s, a); see below.

T(n, U) is the minimum for n steps if other values take at most U bytes of the quick memories during each backward, and
D(n, U) if x_0 has been written before. P(n, U) is T if they take up to U + min(s, a) during the first backward. With
times in units of a run, m = w + r for a tape, and T(1, U) = D(1, U) = P(1, U) = 1, for n > 1

    T(n, U) = min(1 + T(n-1, U-t), 1 + m + T(n-1, U),
                  min over 1 <= e < n of e + T(e, U) + T(n-e, U-s), w + r + e + D(e, U) + T(n-e, U)),

D(n, U) is the same with D in place of all T but those of n - e, and without w; P is the same with P in place of those
of n-1 and n-e. Without slow memories, this is the recurrence of Maddison (2024), with sizes; the others resemble those
of Aupy et al. (2016). No schedule takes less time:

- *The first tape exists during all backwards but its own.* Leave out the first step; its states become one. If the tape
  was always in quick memory, U - t bytes are left for the other steps. Otherwise it costs m.
- *Otherwise*, the first step runs again after the first backward. Call what is computed from x_0 since then new. Let e
  be the largest number for which a new value leads to the tape of step e. The steps 1 .. e ran in the first sweep, and
  again before the backward of step e. Leave out the other steps, and make one sweep of all runs before the backward of
  step e: a schedule of e steps in U bytes, with e runs fewer. Now leave out the steps 1 .. e instead. The other steps
  use neither x_0 nor a new value. But until the backward of step e, some of these exist. If one was always in quick
  memory, U - s bytes are left for the other steps. Otherwise, at some backward all of them are in slow memory, and one
  that leads to the tape of step e has to be read: r, which no part counts. Either x_0 is among them, was written, and D
  follows: w. Or x_0 is gone, and the first tape is among them: it costs m and a run, and T(e-1, U) remains.
- *A tape or adjoint that has been read* may leave more bytes during its backward. Where the other steps have U - s < 0
  bytes, this must happen at each backward but the first. If an adjoint is moved, this costs at least w + r if a <= s,
  and the rest takes T(n-e, U), as above. If only tapes are, each costs m, and 1 + (n-e-1) (1 + m) in all.

Without tapes, the backward of step k reads x_k in place of its tape; then T(1, U) = 0, there are no terms with tapes,
and U is M - s - a. If tapes are smaller than states, or adjoints larger, let U be M - t - a for all backwards, with the
minimum of s and t in place of s. A value that moves in parts counts as moved as a whole, for the time of one byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np
from numpy.typing import NDArray

from remat.plugin import Number

Int32Array = NDArray[np.int32]

MOST_SUMS = 10**9
"""Maximum number of sums of two entries: about half a second."""

NEVER = 2**29
"""A time that no schedule takes; the sum of two is a 32-bit integer."""

FINE = 1000
"""Parts of a run's time to which those of transfers are rounded down."""


@dataclass(frozen=True)
class EqualSteps:
    """A loop of equal steps.

    Attributes
    ----------
    steps, state, adjoint : int
    tape : int or None
        Bytes; None without tapes.
    forward : number
        Time of a run.
    write, read : number
        Minimum time to move a part of a value to slow memory and back.
    """

    steps: int
    state: int
    adjoint: int
    tape: int | None
    forward: Number
    write: Number = 0
    read: Number = 0

    @property
    def size(self) -> int:
        """Bytes by which U is reduced for a state."""
        return self.state if self.tape is None else min(self.state, self.tape)

    @property
    def tight(self) -> bool:
        """Whether the output of the run that makes a tape counts."""
        return self.tape is None or self.adjoint <= self.state <= self.tape

    @property
    def fixed(self) -> int:
        """Bytes beside U."""
        if self.tape is None:
            return self.state + self.adjoint
        return self.tape + self.adjoint + (self.state if self.tight else 0)

    @property
    def early(self) -> int:
        """Bytes more than U during the first backward."""
        return min(self.state, self.adjoint) if self.tight else 0


def least_time(
    loop: EqualSteps, size: int, *, slow: bool, stopped: Callable[[], bool], sums: int = MOST_SUMS
) -> Fraction:
    """Return a bound on the time of runs and transfers; 0 if the table would be too large, or is stopped.

    O(n^2 U) time in O(n) array operations, O(n U) memory.

    Parameters
    ----------
    loop : EqualSteps
    size : int
        Bytes of the quick memories.
    slow : bool
        Whether there are slow memories; otherwise `size` is the number of all bytes.
    stopped : callable
    sums : int
        Maximum number of sums of table entries.
    """
    n, run = loop.steps, Fraction(loop.forward)
    if loop.size < 1 or not run:
        return Fraction(0)
    parts = [Fraction(time) / run for time in (loop.write, loop.read)] if slow else []
    fine = 1 if all(part.denominator == 1 for part in parts) else FINE
    if n * (n + 1) // 2 * fine >= NEVER:
        return Fraction(0)
    moves = [min(NEVER // 4, int(part * fine)) for part in parts]
    most = min(max(0, size - loop.fixed), (n - 1) * max(loop.state, loop.tape or 0))
    for unit in sorted({gcd(loop.size, loop.tape or 0), loop.size}):
        rows = most // unit + 1
        if rows * n * n * (5 if slow else 2) <= 2 * sums:
            tape = None if loop.tape is None else loop.tape // unit
            early = (most % unit + loop.early) // unit
            tables = filled(Units(n, rows, loop.size // unit, tape, early, fine), moves, stopped)
            return Fraction(0) if tables is None else int(tables.first.times[-1, n]) * run / fine
    return Fraction(0)


@dataclass(frozen=True)
class Units:
    """A loop with sizes in units of bytes, and the time of a run in units of time."""

    steps: int
    rows: int
    state: int
    tape: int | None
    early: int
    run: int


class Times:
    """T, D or P for U = -below .. rows - 1 and all numbers of steps.

    Attributes
    ----------
    times : (below + rows, n + 1) int32
    onward : the same
        With the time of a sweep through all steps.
    back : the same
        With the numbers of steps in descending order, which makes sums contiguous.
    """

    def __init__(self, loop: Units, below: int, tape_move: int) -> None:
        self.loop, self.below = loop, below
        self.times, self.onward, self.back = np.full((3, below + loop.rows, loop.steps + 1), NEVER, dtype=np.int32)
        alone = 0 if loop.tape is None else loop.run
        self.put(1, np.full(loop.rows, alone))
        # With less than no bytes, each step but the last moves its tape.
        for count in range(1, loop.steps + 1):
            others = (count - 1) * (loop.run + tape_move) if count > 1 and tape_move else 0
            most = NEVER if count > 1 and not tape_move else min(NEVER, alone + others)
            self.times[:below, count] = self.back[:below, loop.steps - count] = most

    def put(self, count: int, found: Int32Array) -> None:
        """Enter the times for so many steps and U >= 0."""
        found = np.minimum(found, NEVER)
        self.times[self.below :, count] = self.back[self.below :, self.loop.steps - count] = found
        self.onward[self.below :, count] = found + count * self.loop.run

    def splits(self, first: Int32Array, count: int, size: int) -> Int32Array:
        """Return the minimum over e of `first` for e steps and the own time of the others with `size` less memory."""
        rows, n = self.loop.rows, self.loop.steps
        lowest = max(0, size - self.below)
        found = np.full(rows, NEVER, dtype=np.int32)
        if lowest < rows:
            others = self.back[self.below + lowest - size : self.below + rows - size, n - count + 1 : n]
            found[lowest:] = (first[lowest:, 1:count] + others).min(axis=1)
        return found

    def taped(self, count: int, move: int | None) -> Int32Array:
        """Return the time if the first tape is in quick memory, or moved, until its backward."""
        loop, rest = self.loop, self.times[:, count - 1]
        found = np.full(loop.rows, NEVER, dtype=np.int32)
        if loop.tape is not None:
            lowest = max(0, loop.tape - self.below)
            if lowest < loop.rows:
                found[lowest:] = rest[self.below + lowest - loop.tape : self.below + loop.rows - loop.tape]
            if move is not None:
                np.minimum(found, rest[self.below :] + move, out=found)
        return found + loop.run


@dataclass(frozen=True)
class Tables:
    """T, D and P."""

    plain: Times
    again: Times
    first: Times


def filled(loop: Units, moves: Sequence[int], stopped: Callable[[], bool], *, schedules: bool = False) -> Tables | None:
    """Fill T, D and P; None if stopped.

    Parameters
    ----------
    loop : Units
    moves : sequence of int
        Times to write and to read; empty without slow memory.
    stopped : callable
    schedules : bool
        Whether to leave out the terms that are no schedules: a slow copy of x_0 has no use after the first tape.
    """
    move = sum(moves) if moves else None
    pressed = sum(moves) if loop.tape is not None and not schedules else 0
    plain, again = Times(loop, 0, 0), Times(loop, 0, 0)
    first = Times(loop, loop.early, pressed)
    read_first = again.onward.copy()  # the first part of a split whose first state or tape is in slow memory
    for count in range(2, loop.steps + 1):
        if count % 64 == 0 and stopped():
            return None
        found = [
            np.minimum(each.splits(plain.onward, count, loop.state), each.taped(count, move)) for each in (plain, first)
        ]
        if move is not None:
            write, read = moves
            moved = plain.splits(read_first, count, 0) + read
            kept = plain.splits(again.onward, count, loop.state)
            taped = (plain if schedules else again).taped(count, move)
            again.put(count, np.minimum(np.minimum(kept, moved), taped))
            found[0] = np.minimum(found[0], moved + write)
            found[1] = np.minimum(found[1], first.splits(read_first, count, 0) + read + write)
            read_first[:, count] = again.onward[:, count]
            if loop.tape is not None and not schedules:
                with_tape = plain.onward[:, count - 1] + (2 * loop.run + move - write)
                read_first[:, count] = np.minimum(read_first[:, count], with_tape)
        plain.put(count, found[0])
        first.put(count, found[1])
    return Tables(plain, again, first)
