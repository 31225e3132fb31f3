"""Plans of adjoint schedules that store tapes and states, and the memory for them.

The working memory holds one state, one adjoint and one tape. As in `remat_algorithms.adjoint.plan`, nothing is copied
if everything is in one memory: a value that is not freed is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from remat.plugin import WHOLE, OptionError, Problem, Ragged, StepKind, Steps, run_in_order
from remat_algorithms.adjoint.slots import initially_in


@dataclass
class TapePlan:
    """Steps of a schedule over n steps with tapes; `level` is the index of the storage memory, 0 for none.

    Attributes
    ----------
    advances : int
        Forward steps that make no tape.
    copies : int
        Writes and reads.
    """

    n: int
    level: int
    advances: int = 0
    copies: int = 0
    _kind: list[int] = field(default_factory=list)
    _item: list[int] = field(default_factory=list)
    _way: list[tuple[int, int]] = field(default_factory=list)
    _drop: list[tuple[int, ...]] = field(default_factory=list)

    # Values: x_0..x_n, s_1..s_n, y_0..y_n. Tasks: F_1..F_n, Fe_1..Fe_n, loss, B_1..B_n.

    def advance(self, first: int, end: int) -> None:
        """Go forward from the live x_first to x_end."""
        for step in range(first, end):
            self._add(StepKind.RUN, step, drop=(step,))
        self.advances += end - first

    def tape(self, step: int, *, keep: bool) -> None:
        """Make a step's tape from the live x_step; `keep` its output x_{step+1}."""
        self._add(StepKind.RUN, self.n + step, drop=(step,) if keep else (step, step + 1))

    def back(self, step: int) -> None:
        """Run the backward of a step, whose tape is in the working memory; the last one's begins with the loss."""
        if step == self.n - 1:
            self._add(StepKind.RUN, 2 * self.n, drop=(self.n,))
        self._add(StepKind.RUN, 2 * self.n + 1 + step, drop=(self.n + 1 + step, 2 * self.n + 2 + step))

    def tape_and_back(self, step: int) -> None:
        """Write a step's tape and use it immediately."""
        self.tape(step, keep=step == self.n - 1)
        self.back(step)

    def store_tape(self, step: int, level: int | None = None) -> None:
        """Move a step's tape to storage; `level` if not to that of the plan."""
        self._copy(self.n + 1 + step, 0, self.level if level is None else level, drop=True)

    def fetch_tape(self, step: int, level: int | None = None) -> None:
        """Move a step's tape back."""
        self._copy(self.n + 1 + step, self.level if level is None else level, 0, drop=True)

    def store_state(self, step: int, level: int | None = None) -> None:
        """Copy the live x_step to storage."""
        self._copy(step, 0, self.level if level is None else level, drop=False)

    def fetch_state(self, step: int, level: int | None = None, *, last: bool) -> None:
        """Copy or, at `last`, move x_step back."""
        self._copy(step, self.level if level is None else level, 0, drop=last)

    def discard_state(self, step: int) -> None:
        """Remove x_step from storage."""
        if self.level:
            self._add(StepKind.DROP, -1, way=(self.level, -1), drop=(step,))

    def discard(self, step: int, level: int) -> None:
        """Remove x_step from any level."""
        self._add(StepKind.DROP, -1, way=(level, -1), drop=(step,))

    def _copy(self, value: int, source: int, target: int, *, drop: bool) -> None:
        if self.level:
            self._add(StepKind.COPY, value, way=(source, target), drop=(value,) if drop else ())
            self.copies += 1

    def _add(self, kind: int, item: int, *, way: tuple[int, int] = (-1, -1), drop: tuple[int, ...]) -> None:
        self._kind.append(kind)
        self._item.append(item)
        self._way.append(way)
        self._drop.append(drop)

    def steps(self, problem: Problem) -> Steps:
        """Return the plan as steps on the problem's machine."""
        item = np.array(self._item, dtype=np.int64)
        if not self.level:
            return run_in_order(problem.graph, problem.machine, item)
        ways = np.array(self._way, dtype=np.int64).reshape(-1, 2)
        counts = [len(drop) for drop in self._drop]
        freed = [value for drop in self._drop for value in drop]
        return Steps(
            kind=np.array(self._kind, dtype=np.int8),
            item=item,
            source=ways[:, 0],
            target=ways[:, 1],
            amount=np.full(len(item), WHOLE, dtype=np.int64),
            drop=Ragged(np.concatenate(([0], np.cumsum(counts, dtype=np.int64))), np.array(freed, dtype=np.int64)),
        )


@dataclass(frozen=True, slots=True)
class TapeRoom:
    """Bytes in addition to one working state, adjoint and tape.

    Attributes
    ----------
    size : int or None
        None is unbounded.
    fixed : int
        Bytes of the working state, adjoint and tape in the same memory (0 for a storage level).
    memory : int
    level : int
        0 where everything lives in one memory.
    state, tape : int
        Largest sizes.
    given : bool
        Whether x_0 lies in the level from the start.
    free : bool
        Whether copies take no time.
    """

    size: int | None
    fixed: int
    memory: int
    level: int
    state: int
    tape: int
    given: bool
    free: bool

    @staticmethod
    def of(problem: Problem, name: str) -> TapeRoom:
        """Return the free memory of the fastest storage level, or of the one memory.

        Raises
        ------
        remat.OptionError
            For an adjoint without tapes or with forward times that differ, or without links to the level.
        """
        chain, machine = problem.chain, problem.machine
        if not chain.saves:
            raise OptionError(
                f"{name} needs tapes that can be stored; give the adjoint a tape_size", argument="algorithm"
            )
        if chain.forward_time.min() != chain.forward_time.max():
            raise OptionError(f"{name} needs steps of equal forward time; use walther-griewank", argument="algorithm")
        state, tape = int(chain.activation_size.max()), int(chain.saved_size.max())
        if len(machine.memories) == 1:
            fixed = chain.static_memory + state + tape + int(chain.gradient_size.max())
            size = None if problem.budget is None else problem.budget - fixed
            return TapeRoom(size, fixed, 0, 0, state, tape, given=False, free=True)
        for ends in ((0, 1), (1, 0)):
            if ends not in machine.link_index:
                names = [machine.memories[m].name for m in ends]
                raise OptionError(f"checkpoints need a link from {names[0]} to {names[1]}", argument="machine")
        links = [machine.links[machine.link_index[ends]] for ends in ((0, 1), (1, 0))]
        return TapeRoom(
            machine.memories[1].capacity,
            0,
            1,
            1,
            state,
            tape,
            given=initially_in(problem, 1),
            free=all(link.bandwidth is None and link.latency == 0 for link in links),
        )

    def units(self, unit: int, most: int) -> int:
        """Return the number of units that fit, at most `most`; -1 if the working state, adjoint and tape do not fit."""
        if self.size is not None and self.size < 0:
            return -1
        return most if self.size is None or unit == 0 else min(most, self.size // unit)
