"""POFO's table: the stages of a chain that keep, offload or recompute the values that their backwards need.

Beaumont, Eyraud-Dubois, Shilova 2021, "Efficient combination of rematerialization and offloading for training DNNs".
Transfers are fluid: while a forward runs, the bytes given to the link leave at the link's rate. While a backward runs,
the same happens with time reversed. At the boundary before stage i, the state is

    A    bytes of earlier stages that stay,
    d_f  bytes of earlier stages that are still to be sent when forward i begins,
    d_b  bytes of earlier stages that are already back when backward i ends.

A stage with a saving forward keeps or offloads its item (its input, the values that its forward saves, or both). If
bytes are missing, only the link works for a while: eps_f = A + d_f + item + need - M before the forward, eps_b likewise
after the backward. Stages i..j together may run without saving. Their input stays or is offloaded, and rotor's table
gives the time of their backwards within the free memory. At the loss, the bytes still to be sent and those already back
overlap: they are the items of the last stages.

Sizes are rounded to slots such that their sums are right, rather than each size. The schedule that is placed afterwards
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from remat.plugin import Chain
from remat_algorithms.chain.rotor.excess_limit import Allowed
from remat_algorithms.chain.rotor.front_table import Cells, Thin
from remat_algorithms.chain.rotor.tick_costs import Costs
from remat_algorithms.chain.rotor.work_counter import Over, Work
from remat_algorithms.chain.segments import Segments

FloatArray = NDArray[np.float64]

POINTS = 64
"""Maximum points of the front of a recomputed segment: more than slots can distinguish."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision for some stages.

    Attributes
    ----------
    first, last : int
        One stage with a saving forward, or a segment that is recomputed.
    remade : bool
    input_leaves, saved_leaves : bool
        Whether the input of the first stage, and the values that its forward saves, are offloaded.
    room : int
        Bytes in addition to its input that a recomputed segment has for its backwards.
    """

    first: int
    last: int
    remade: bool
    input_leaves: bool
    saved_leaves: bool
    room: int = 0


LONGEST = 1e300
"""Maximum time of a slot on a link, in units of the table's time."""


@dataclass(frozen=True)
class Rates:
    """Bytes out and back per unit of time."""

    out: float
    back: float


def remade_segments(chain: Chain, memory: int, stopped: Callable[[], bool]) -> Cells | None:
    """Return the fronts of all segments within `memory` bytes, thinned; None if stopped."""
    segments = Segments.of(chain)
    most = memory - segments.activation[segments.states.stage]
    allowed, work = Allowed.anywhere(segments, most), Work(stopped=stopped)
    try:
        return Cells.of(segments, Costs.of(segments), allowed, work, thin=Thin(POINTS, up=True))
    except Over:
        return None


class PofoTable:
    """The table of one chain, memory and pair of rates.

    Parameters
    ----------
    chain : Chain
        Without variants.
    memory : int
        Bytes without the static ones.
    rates : Rates
        Infinite ones are allowed.
    slots : int
        O(L slots^3) memory; O(L slots^3) time without recomputed segments, O(L^2 slots^3) with them.
    remade : Cells, optional
        The fronts of recomputed segments; default: no recomputation.
    """

    def __init__(self, chain: Chain, memory: int, rates: Rates, slots: int, *, remade: Cells | None) -> None:
        self.chain, self.memory, self.rates, self.remade = chain, memory, rates, remade
        self.segments = Segments.of(chain)
        # No more slots than bytes: a slot has at least one.
        self.length, self.slots = chain.length, max(1, min(slots, memory))
        self.unit = max(1.0, memory / self.slots)
        read_before = np.concatenate(([False], chain.reads_output[:-1]))
        self.input_item = np.where(chain.reads_input | read_before, chain.activation_size[:-1], 0)
        self.saved_item = np.where(self.segments.saves, chain.saved_size, 0)
        self.input_slots, self.saved_slots = self._diffused(self.input_item), self._diffused(self.saved_item)
        unread = chain.activation_size[:-1] - self.input_item
        workspace = np.where(self.segments.saves, chain.saving_workspace, chain.forward_workspace)
        self.forward_need = self._up(chain.activation_size[1:] + workspace + unread)
        output = np.where(chain.reads_output, chain.activation_size[1:], 0)
        self.backward_need = self._up(
            chain.gradient_size[1:] + chain.gradient_size[:-1] + output + chain.backward_workspace
        )
        last = int(chain.activation_size[-1]) + int(chain.gradient_size[-1]) + chain.loss_workspace
        self.loss_need = int(self._up(np.array([last]))[0])
        self.sent = self._moved(self.segments.save_time.astype(np.float64), rates.out)
        self.returned = self._moved(chain.backward_time.astype(np.float64), rates.back)
        self.swept = self._moved(chain.forward_time.astype(np.float64), rates.out)
        # A power of two near the chain's own time makes times fit into float32 with only their last bits cut off.
        own = float((self.segments.save_time + chain.backward_time).astype(np.float64).sum())
        self.time_unit = 2.0 ** min(1000, int(np.frexp(own)[1]))
        shape = (self.length + 1, *[self.slots + 2] * 3)
        self.value = np.full(shape, np.inf, dtype=np.float32)

    @property
    def estimate(self) -> float:
        """Time that the model adds to the time without waiting and recomputation; inf if nothing fits."""
        return float(self.value[0, 0, 0, 0]) * self.time_unit

    def fill(self, stopped: Callable[[], bool]) -> bool:
        """Fill the table from the loss back; return False if stopped.

        States whose time float32 cannot represent, relative to the chain's own time, count as impossible.
        """
        with np.errstate(over="ignore"):
            return self._fill(stopped)

    def _fill(self, stopped: Callable[[], bool]) -> bool:
        index = np.arange(self.slots + 1)
        kept, sent, back = index[:, None, None], index[None, :, None], index[None, None, :]
        # At the loss, the bytes still to be sent and those already back are the items of the same last stages.
        over = kept + np.maximum(sent, back) + self.loss_need - self.slots
        waits = self._wait(np.maximum(back - sent, 0), self.rates.back) + self._wait(
            np.maximum(over, 0), self.rates.out
        )
        waits = np.where((over > sent) | (kept + back + self.loss_need > self.slots), np.inf, waits)
        self.value[self.length, :-1, :-1, :-1] = waits
        for stage in range(self.length - 1, -1, -1):
            if stopped():
                return False
            best = self.value[stage, :-1, :-1, :-1]
            for _, cost in self._ways(stage):
                np.minimum(best, cost, out=best)
        return True

    def decisions(self) -> list[Decision]:
        """Return the decisions of a shortest path through the table."""
        found = []
        stage, state = 0, (0, 0, 0)
        while stage < self.length:
            best: tuple[float, Decision, tuple[int, int, int]] | None = None
            for decision, cost, following in self._ways_at(stage, state):
                if best is None or cost < best[0]:
                    best = cost, decision, following
            assert best is not None, "a reachable state has a next option"
            found.append(best[1])
            stage, state = best[1].last + 1, best[2]
        return found

    # --- one stage ----------------------------------------------------------------------------------------------------

    def _ways(self, stage: int) -> Iterator[tuple[Decision, FloatArray]]:
        """Yield the possible decisions at a stage, with the cost in every state."""
        index = np.arange(self.slots + 1)
        for decision in self._options(stage):
            ahead, rows, columns, planes = self._next(decision, index[:, None], index[None, :])
            onward = self.value[decision.last + 1][planes[:, None, None], rows[:, :, None], columns[:, None, :]]
            yield decision, ahead[0][:, :, None] + ahead[1][:, None, :] + onward

    def _ways_at(
        self, stage: int, state: tuple[int, int, int]
    ) -> Iterator[tuple[Decision, float, tuple[int, int, int]]]:
        """Yield the possible decisions in one state, with cost and next state."""
        kept = np.array([[state[0]]])
        for decision in self._options(stage):
            ahead, _, _, planes = self._next(decision, kept, np.array([[state[1]]]))
            behind, _, columns, _ = self._next(decision, kept, np.array([[state[2]]]))
            _, rows, _, _ = self._next(decision, kept, np.array([[state[1]]]))
            after = (int(planes[0]), int(rows[0, 0]), int(columns[0, 0]))
            cost = float(ahead[0][0, 0] + behind[1][0, 0] + self.value[decision.last + 1][after])
            if decision.remade:
                decision = self._with_room(decision, state)
            yield decision, cost, after

    def _options(self, stage: int) -> Iterator[Decision]:
        inputs = (False, True) if self.input_item[stage] else (False,)
        saved = (False, True) if self.saved_item[stage] else (False,)
        for input_leaves in inputs:
            for saved_leaves in saved:
                yield Decision(stage, stage, False, input_leaves, saved_leaves)
            if self.remade is not None:
                for last in range(stage, self.length):
                    yield Decision(stage, last, True, input_leaves, False)

    def _next(
        self, decision: Decision, kept: NDArray[np.int64], other: NDArray[np.int64]
    ) -> tuple[tuple[FloatArray, FloatArray], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the times of the forward (kept x sent) and of the backward (kept x back), and the next states."""
        stage = decision.first
        inputs, saved = int(self.input_slots[stage]), int(self.saved_slots[stage])
        if decision.remade:
            # x_i itself waits for the backwards, whether or not its own backward reads it.
            inputs, saved = int(self._up(self.chain.activation_size[stage : stage + 1])[0]), 0
        item = inputs + saved
        leaves_now = inputs if decision.input_leaves else 0
        leaves_then = saved if decision.saved_leaves else 0
        planes = np.minimum(kept[:, 0] + item - leaves_now - leaves_then, self.slots + 1)
        if decision.remade:
            need = int(self._up(self.segments.sweep_need(stage)[[decision.last - stage]])[0])
            sent = int(self.swept[stage : decision.last + 1].sum())
        else:
            need, sent = int(self.forward_need[stage]), int(self.sent[stage])
        missing = kept + other + item + need - self.slots
        wait = np.maximum(missing, 0)
        ahead = np.where(wait > other, np.inf, self._wait(wait, self.rates.out))
        rows = np.minimum(np.maximum(other + leaves_now - sent - wait, 0) + leaves_then, self.slots + 1)
        if decision.remade:
            extra, returned = self._remade(decision, kept + other + item)
            behind, wait = extra, np.zeros_like(other + kept)
        else:
            missing = kept + other + item + int(self.backward_need[stage]) - self.slots
            wait = np.maximum(missing, 0)
            behind = np.where(wait > other, np.inf, self._wait(wait, self.rates.back))
            returned = np.full_like(wait, int(self.returned[stage]))
        columns = np.maximum(other - returned - wait, 0) + leaves_now + leaves_then
        columns = np.minimum(columns, self.slots + 1)
        return (ahead, behind), rows, columns, planes

    def _remade(self, decision: Decision, held: NDArray[np.int64]) -> tuple[FloatArray, NDArray[np.int64]]:
        """Return the time that recomputation adds and the slots that return meanwhile, by slots that others hold."""
        assert self.remade is not None
        first, last = decision.first, decision.last
        taken = self.remade.times(first, last, self._rooms)
        once = float((self.segments.save_time + self.chain.backward_time)[first : last + 1].sum())
        sweep = float(self.chain.forward_time[first : last + 1].sum())
        room = np.minimum(held, 2 * self.slots + 2)
        moved = np.full(len(taken), self.slots, dtype=np.int64)
        if np.isfinite(self.rates.back):
            finite = np.where(np.isfinite(taken), taken, 0)
            moved = np.minimum(finite * (self.rates.back / self.unit), self.slots).astype(np.int64)
        return ((taken + (sweep - once)) / self.time_unit)[room], moved[room]

    @cached_property
    def _rooms(self) -> NDArray[np.int64]:
        """Free bytes for each number of occupied slots."""
        return np.array([int(self.memory - slots * self.unit) for slots in range(2 * self.slots + 3)], dtype=np.int64)

    def _with_room(self, decision: Decision, state: tuple[int, int, int]) -> Decision:
        size = int(self._up(self.chain.activation_size[decision.first : decision.first + 1])[0])
        room = int(self.memory - (state[0] + state[2] + size) * self.unit)
        return Decision(decision.first, decision.last, True, decision.input_leaves, False, room)

    # --- bytes and slots ----------------------------------------------------------------------------------------------

    def _up(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        slots: NDArray[np.int64] = np.ceil(sizes / self.unit).astype(np.int64)
        return np.minimum(slots, self.slots + 1)

    def _diffused(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Round sizes such that the sum of every prefix is right to a slot."""
        sums = np.concatenate(([0], np.cumsum(sizes)))
        slots = np.round(sums / self.unit).astype(np.int64)
        return slots[1:] - slots[:-1]

    def _moved(self, times: FloatArray, rate: float) -> NDArray[np.int64]:
        """Slots that leave, or return, in some times."""
        if np.isinf(rate):
            return np.full(len(times), self.slots + 1, dtype=np.int64)
        sums = np.concatenate(([0], np.cumsum(times * (rate / self.unit))))
        with np.errstate(invalid="ignore"):  # infinite times move everything
            moved = np.diff(np.floor(sums))
        return np.where(moved <= self.slots, moved, self.slots + 1).astype(np.int64)

    def _wait(self, slots: NDArray[np.int64], rate: float) -> FloatArray:
        """Return the times of numbers of slots on a link, in the table's unit."""
        waits: FloatArray = slots.astype(np.float64) * min(self.unit / rate / self.time_unit, LONGEST)
        return waits
