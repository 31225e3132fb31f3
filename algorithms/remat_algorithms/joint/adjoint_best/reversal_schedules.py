"""Schedules of equal steps with tapes by the recurrence of `reversal_table`, in one memory or on two storage levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import NamedTuple

import numpy as np

from remat.plugin import Context, Problem, Proposal
from remat_algorithms.adjoint.slots import initially_in
from remat_algorithms.adjoint.tapes.tapes import TapePlan
from remat_algorithms.adjoint.uniform_steps import Facts
from remat_algorithms.joint.adjoint_best.reversal_table import FINE, MOST_SUMS, NEVER, Tables, Units, filled

QUICK, DISK = 1, 2
"""Places of a stored value."""


def schedules(problem: Problem, context: Context) -> Iterator[Proposal]:
    """Yield a schedule of equal steps with tapes for one memory, or for each storage level as the slow one.

    The quick level is the first, if it has a capacity. Moves to it are not counted. O(n^2 U) time in O(n) array
    operations, O(n U) memory; nothing if that is too large.
    """
    facts, machine = Facts.of(problem), problem.machine
    if not facts.forward or not facts.taped or not facts.equal or facts.steps < 2 or not min(facts.state, facts.tape):
        return
    capacity = machine.memories[min(1, len(machine.memories) - 1)].capacity
    if len(machine.memories) == 1:
        if capacity is not None:
            yield from _planned(problem, facts, capacity - facts.working, (0, 0), context)
        return
    linked = [k for k in range(1, len(machine.memories)) if {(0, k), (k, 0)} <= machine.link_index.keys()]
    if 1 in linked:
        for disk in [1] if capacity is None else [0, *linked[1:]]:
            yield from _planned(problem, facts, capacity or 0, (1, disk), context)


def _planned(
    problem: Problem, facts: Facts, room: int, levels: tuple[int, int], context: Context
) -> Iterator[Proposal]:
    """Yield the schedule in so many bytes of the quick level, or of the one memory beside the working values."""
    n, machine, (quick, disk) = facts.steps, problem.machine, levels
    most, unit = min(room, n * max(facts.state, facts.tape)), gcd(facts.state, facts.tape)
    rows = most // unit + 1
    if room < 0 or rows * n * n * (4 if disk else 2) > 2 * MOST_SUMS:
        return
    moves, run = [], 1
    if disk:
        links = [machine.links[machine.link_index[ends]] for ends in ((0, disk), (disk, 0))]
        parts = [Fraction(link.time(facts.state)) / Fraction(facts.forward or 1) for link in links]
        run = 1 if all(part.denominator == 1 for part in parts) else FINE
        moves = [min(NEVER // 4, int(part * run)) for part in parts]
    early = 0 if quick else (most % unit + min(facts.state, facts.adjoint)) // unit
    if n * (n + 1) // 2 * run >= NEVER:
        return
    tables = filled(
        Units(n, rows, facts.state // unit, facts.tape // unit, early, run),
        moves,
        lambda: context.stopped,
        schedules=True,
    )
    if tables is None or tables.first.times[-1, n] >= NEVER:
        return
    plan = TapePlan(n, quick)
    given = next((level for level in range(1, len(machine.memories)) if initially_in(problem, level)), None)
    if given is not None:
        plan.discard(0, given)
    _Planner(plan, tables, moves, (0, quick, disk)).run(rows - 1)
    yield Proposal(steps=plan.steps(problem))


class _Range(NamedTuple):
    """Steps that remain.

    Attributes
    ----------
    step, steps : int
        The first one, whose state is live or stored, and their number.
    units : int
        Memory that is left.
    stored : int
        Place from which the first state is read; 0 if it is live.
    written : bool
        Whether the slow level has the first state, too.
    first : bool
        Whether no backward has run.
    tape : int
        The place of the tape of the first step, whose backward is due; 0 for a range.
    """

    step: int
    steps: int
    units: int
    stored: int = 0
    written: bool = False
    first: bool = False
    tape: int = 0


class _Choice(NamedTuple):
    """Where to store the first tape (`end` 0), or the first state before `end` steps."""

    end: int
    place: int


@dataclass(frozen=True)
class _Planner:
    """Reads the choices from the tables."""

    plan: TapePlan
    tables: Tables
    moves: list[int]
    levels: tuple[int, int, int]

    def run(self, units: int) -> None:
        """Add all steps to the plan."""
        stack = [_Range(0, self.plan.n, units, first=True)]
        while stack:
            now = stack.pop()
            if now.tape:
                self.plan.fetch_tape(now.step, self.levels[now.tape])
                self.plan.back(now.step)
            else:
                stack += self.split(now)

    def split(self, now: _Range) -> list[_Range]:
        """Add the first sweep of a range; return what remains, last first."""
        plan, step = self.plan, now.step
        if now.stored:
            plan.fetch_state(step, self.levels[now.stored], last=now.stored == QUICK)
        chosen = None if now.steps == 1 else self.choice(now)
        if now.written and (chosen is None or not chosen.end):
            plan.discard(step, self.levels[DISK])
        if chosen is None:
            plan.tape_and_back(step)
            return []
        left = now.units - self.size(chosen)
        if not chosen.end:
            plan.tape(step, keep=True)
            plan.store_tape(step, self.levels[chosen.place])
            return [
                _Range(step, 1, 0, tape=chosen.place),
                _Range(step + 1, now.steps - 1, left, first=now.first),
            ]
        written = now.written or chosen.place == DISK
        if not (now.written and chosen.place == DISK):
            plan.store_state(step, self.levels[chosen.place])
        plan.advance(step, step + chosen.end)
        return [
            _Range(step, chosen.end, now.units, stored=chosen.place, written=written),
            _Range(step + chosen.end, now.steps - chosen.end, left, first=now.first),
        ]

    def size(self, chosen: _Choice) -> int:
        """Return the units of the quick level that a choice takes."""
        loop = self.tables.plain.loop
        if chosen.place == DISK:
            return 0
        return loop.state if chosen.end else loop.tape or 0

    def choice(self, now: _Range) -> _Choice:
        """Return the choice with the minimum time for a range of several steps."""
        loop, plain, again = self.tables.plain.loop, self.tables.plain, self.tables.again
        late = self.tables.first if now.first else plain
        own = again if now.written else plain
        found: list[tuple[int, _Choice]] = []
        for place in (QUICK, DISK)[: 1 + bool(self.moves)]:
            moved = sum(self.moves) if place == DISK else 0
            for end in (0, 1):
                left = now.units - self.size(_Choice(end, place))
                if left < -late.below:
                    continue
                row = late.times[late.below + left]
                if not end:
                    found.append((loop.run + moved + int(row[now.steps - 1]), _Choice(0, place)))
                    continue
                begun = again if place == DISK else own
                sums = begun.onward[now.units, 1 : now.steps] + row[now.steps - 1 : 0 : -1]
                best = int(np.argmin(sums))
                paid = moved - (self.moves[0] if place == DISK and now.written else 0)
                found.append((paid + int(sums[best]), _Choice(best + 1, place)))
        return min(found)[1]
