"""Local search over orders with host offloading: which micro-batches are sent, when they return, and what runs when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.parallel.pipeline.local_search.arrays import Rules, facts_of, sequence_of, start_keys
from remat_algorithms.parallel.pipeline.local_search.driver import LocalSearch
from remat_algorithms.parallel.pipeline.local_search.priority_keys import FREE, STRICT
from remat_algorithms.parallel.pipeline.local_search.records import Facts
from remat_algorithms.parallel.pipeline.model import B, F, Lists, Op, W, complete
from remat_algorithms.parallel.pipeline.offload.offload_model import Choice, Hosting, R
from remat_algorithms.parallel.pipeline.successive_halving import halve

HEAT = 1.0
"""Accepted increase of the makespan over the current schedule, in mean operation times."""

HEATS = (0.05, 0.3, 1.0)
"""The same, in rotation, if stages may also recompute."""

KEPT = 16
"""Number of orders from which the local search starts."""

AT_ONCE = 2_000_000
"""Product of moves, operations and classes between two checks for a stop."""

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of the worthwhile offloads in the initial solutions."""

EARLY = (1.0, 2.0)
"""Initial lead of a return before its backward, in return times."""

RULES = Rules(strict=0.9)
"""Moves that do not follow their keys strictly deadlock more often, because they allocate memory early."""


class _Entry(NamedTuple):
    """Keys of an order, and the options of its micro-batches."""

    figure: float
    keys: Any
    choice: Choice


class Start(NamedTuple):
    """Starting point of a search: lists or a sequence, and options of micro-batches.

    Lists with levels only are combined with shares of offloads; without levels, nothing is recomputed.
    """

    lists: Lists = ()
    sequence: tuple[Op, ...] = ()
    level: IntArray | None = None
    choice: Choice | None = None
    shares: tuple[float, ...] = SHARES


def facts_with_host(hosting: Hosting) -> Facts:
    """Convert the stages, their options and their transfers to arrays."""
    return facts_of(hosting.model, hosting.ways, host=(hosting.trips, hosting.way[1]), rules=RULES)


class HostSearch:
    """Local search over the orders of one staging.

    Parameters
    ----------
    hosting : Hosting
    seed : int
    stop : callable
        Polled regularly for a stop.
    offer : callable
        Receives each improved sequence and the options of its micro-batches.
    """

    def __init__(
        self,
        hosting: Hosting,
        *,
        seed: int,
        stop: Callable[[], bool],
        offer: Callable[[tuple[Op, ...], Choice], object],
    ) -> None:
        self.hosting, self.stop, self.offer = hosting, stop, offer
        self.facts = facts_with_host(hosting)
        self.kernel = LocalSearch(self.facts, seed, AT_ONCE // (16 * self.facts.stages**2 * self.facts.batches))
        self.best, self.walked = math.inf, 0
        self.found: Start | None = None

    def run(self, starts: Sequence[Start], moves: int, bound: float) -> float:
        """Search from orders that may exceed the memory; return the best makespan in the model's times.

        Parameters
        ----------
        starts : sequence of Start
        moves : int
            Maximum number of schedules to build.
        bound : float
            Makespan at which to stop.
        """
        self.bound, self.kernel.left = bound, moves
        found = {
            (e.keys.tobytes(), e.choice.level.tobytes(), e.choice.part.tobytes()): e
            for start in starts
            for e in self._begin(start)
            if e.figure < math.inf
        }
        entries = sorted(found.values(), key=lambda entry: entry.figure)[:KEPT]
        halve(entries, moves, self._walked, lambda: self.over)
        return self.best

    @property
    def over(self) -> bool:
        """Whether the search has ended: no moves are left, the bound is reached, or a stop is requested."""
        return self.kernel.left <= 0 or self.best <= self.bound or self.stop()

    def sequence(self, keys: Any, choice: Choice, *, strict: bool) -> tuple[Op, ...] | None:
        """Return the sequence of keys and options; None on deadlock."""
        found = self._build(keys, choice, strict)
        return None if found == math.inf else sequence_of(self.facts, self.kernel.order)

    def _build(self, keys: Any, choice: Choice, strict: bool) -> float:
        return self.kernel.build(keys, STRICT if strict else FREE, self._encoded(choice))

    def _encoded(self, choice: Choice) -> IntArray:
        return choice.level * self.facts.width + choice.part

    def _decoded(self, option: IntArray) -> Choice:
        return Choice(option // self.facts.width, option % self.facts.width)

    def _begin(self, start: Start) -> Iterator[_Entry]:
        if start.sequence and start.choice is not None:
            keys = np.zeros((4 * self.facts.stages, self.facts.batches))
            for number, (phase, stage, batch) in enumerate(start.sequence):
                keys[phase * self.facts.stages + stage, batch] = number
            yield from self._made(keys, start.choice, (True,))
        every = [keys_of(self.hosting, start.lists, early) for early in EARLY] if start.lists else []
        for share in start.shares if start.choice is None else (0.0,):
            for keys in every:
                if keys is None:
                    continue
                choice = start.choice
                if choice is None:
                    sent = worth_sending(self.hosting, keys, share)
                    level = np.zeros_like(sent) if start.level is None else start.level
                    choice = Choice(level, sent * (np.take_along_axis(self.facts.parts, level, axis=1) - 1))
                yield from self._made(keys, choice, (True, False))

    def _made(self, keys: Any, choice: Choice, ways: tuple[bool, ...]) -> Iterator[_Entry]:
        kernel = self.kernel
        for strict in ways:
            if kernel.left <= 0 or self.stop():
                return
            kernel.left -= 1
            kernel.progress.best = self.best
            figure = self._build(keys, choice, strict)
            if figure < math.inf:
                kernel.take(figure)
                self._offer_best()
            yield _Entry(figure, kernel.state.current.copy(), self._decoded(kernel.state.current_option))

    def _walked(self, number: int, entry: _Entry, moves: int) -> _Entry:
        state, progress = self.kernel.state, self.kernel.progress
        state.current[:] = state.best[:] = entry.keys
        state.current_option[:] = state.best_option[:] = self._encoded(entry.choice)
        progress.current = progress.best = entry.figure
        heat = HEAT if self.hosting.several is None else HEATS[(number + self.walked) % len(HEATS)]
        self.walked += 1
        for part in self.kernel.parts(moves, lambda: self.over):
            self.kernel.walk(part, heat, float(self.bound))
            self._offer_best()
        return _Entry(progress.best, state.best.copy(), self._decoded(state.best_option))

    def _offer_best(self) -> None:
        """Offer the kernel's best schedule if it is better."""
        kernel = self.kernel
        if kernel.progress.best < self.best:
            self.best = kernel.progress.best
            sequence, choice = sequence_of(self.facts, kernel.best_order), self._decoded(kernel.state.best_option)
            self.found = Start(sequence=sequence, choice=choice)
            self.offer(sequence, choice)


def keys_of(hosting: Hosting, lists: Lists, early: float) -> Any:
    """Return the start times of lists on devices with unlimited memory; None on deadlock.

    A return starts `early` times its duration before its backward.
    """
    model = hosting.model
    completed = complete(model, lists)
    known = None if completed is None else start_keys(model, completed)
    if known is None:
        return None
    keys = np.zeros((4 * model.stages, model.batches))
    keys[: len(known)] = known
    back = np.array(hosting.way[1])[:, None]
    keys[R * model.stages :] = keys[B * model.stages : W * model.stages] - early * back
    return keys


def worth_sending(hosting: Hosting, keys: Any, share: float) -> Any:
    """Return the micro-batches to offload: for each device, a share of the long-lived ones, spread evenly.

    Parameters
    ----------
    hosting : Hosting
    keys : (classes, batches)
        Start times of an order.
    share : float
        Share of the bytes of each device whose offload could return in time. Stages with the longest lifetimes come
        first; within a stage, micro-batches are evenly spaced.

    Returns
    -------
    (stages, batches) int array
    """
    model, (out, back) = hosting.model, hosting.way
    stages, batches = model.stages, model.batches
    sent = np.zeros((stages, batches), dtype=np.int64)
    ends = keys[F * stages : (F + 1) * stages] + np.array(model.forward)[:, None]
    life = keys[B * stages : (B + 1) * stages] - ends
    trip = np.array([one + other for one, other in zip(out, back, strict=True)])[:, None]
    worth = (life >= trip) & (np.array(hosting.away)[:, None] > 0)
    for own in model.on:
        each = {stage: int(worth[stage].sum()) * hosting.away[stage] for stage in own}
        left = share * sum(each.values())
        for stage in sorted(own, key=lambda stage: (-float(life[stage].mean()), stage)):
            there = np.flatnonzero(worth[stage])
            count = min(len(there), int(left / hosting.away[stage] + 1e-9)) if hosting.away[stage] else 0
            left -= count * hosting.away[stage]
            if count:
                number = np.arange(len(there))
                chosen = (number + 1) * count // len(there) > number * count // len(there)
                sent[stage, there[chosen]] = 1
    assert sent.shape == (stages, batches)
    return sent
