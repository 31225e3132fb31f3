"""Local search over orders with host offloading: which micro-batches are sent, when they return, and what runs when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.parallel.pipeline.kernel_arrays import first_progress, start_keys, whole
from remat_algorithms.parallel.pipeline.model import B, F, Lists, Op, W, complete
from remat_algorithms.parallel.pipeline.offload.local_search import Facts, State
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

LARGEST = 2**62


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


def facts_of(hosting: Hosting) -> Facts:
    """Convert the stages and their offload options to arrays."""
    model, back = hosting.model, hosting.way[1]
    stages = range(model.stages)
    forward, backward, weight, _ = model.times
    duration = np.array([*forward, *backward, *weight, *back], dtype=np.float64)
    halves = [bool(time) for time in weight]
    own = [stage for listed in model.on for stage in listed]
    work = duration[: 3 * model.stages].sum() * model.batches
    levels = max(map(len, hosting.ways))
    parts = max(len(level) for own in hosting.ways for level in own)

    def table(name: str, of: Any, kind: type) -> Any:
        found: Any = np.zeros((model.stages, levels, parts), dtype=kind)
        for (stage, level, part), _ in np.ndenumerate(found):
            row = of[stage][min(level, len(of[stage]) - 1)]
            found[stage, level, part] = getattr(row[min(part, len(row) - 1)], name)
        return found

    counts = np.zeros((model.stages, levels), dtype=np.int64)
    for stage in stages:
        counts[stage, : len(hosting.ways[stage])] = [len(level) for level in hosting.ways[stage]]
    return Facts(
        duration=duration,
        device=np.array(list(model.place) * 4, dtype=np.int64),
        delay=np.array(model.delays, dtype=np.float64),
        levels=np.array([len(own) for own in hosting.ways], dtype=np.int64),
        parts=counts,
        again=table("again", hosting.ways, np.float64),
        **{name: table(name, hosting.ways, np.int64) for name in ("held", "forward", "backward", "ahead")},
        away=table("size", hosting.trips, np.int64),
        out=table("out", hosting.trips, np.float64),
        back=table("back", hosting.trips, np.float64),
        kept=np.array(model.kept, dtype=np.int64),
        halves=np.array(halves, dtype=np.int64),
        room=np.array([LARGEST if free is None else free for free in model.free], dtype=np.int64),
        first_own=np.cumsum([0, *map(len, model.on)], dtype=np.int64),
        own=np.array(own, dtype=np.int64),
        stages=model.stages,
        devices=model.devices,
        batches=model.batches,
        step=float(work) / max(1, (2 + any(halves)) * model.stages * model.batches),
    )


def state_of(facts: Facts, seed: int) -> State:
    """Return the scratch space of a local search."""
    classes, batches, devices = 4 * facts.stages, facts.batches, facts.devices
    most = classes * batches

    def times(*shape: int) -> Any:
        return np.zeros(shape, dtype=np.float64)

    return State(
        key=times(classes, batches),
        start=times(classes, batches),
        current=times(classes, batches),
        best=times(classes, batches),
        level=whole(facts.stages, batches),
        current_level=whole(facts.stages, batches),
        best_level=whole(facts.stages, batches),
        sent=whole(facts.stages, batches),
        current_sent=whole(facts.stages, batches),
        best_sent=whole(facts.stages, batches),
        end=times(classes, batches),
        gone=times(facts.stages, batches),
        done=whole(classes),
        possible=times(classes),
        finish=times(classes),
        taken=whole(classes),
        clock=times(devices),
        sending=times(devices),
        coming=times(devices),
        taking=times(devices),
        held=whole(devices),
        free_at=times(devices, most),
        free_size=whole(devices, most),
        head=whole(devices),
        tail=whole(devices),
        order=whole(most, 2),
        best_order=np.full((most, 2), -1, dtype=np.int64),
        used=whole(1),
        progress=first_progress(seed),
    )


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
        # Imported here, so that the kernel is compiled only for a search.
        from remat_algorithms.parallel.pipeline.offload import local_search_kernel as kernel

        self.hosting, self.stop, self.offer = hosting, stop, offer
        self.facts = facts_of(hosting)
        self.state = state_of(self.facts, seed)
        self.schedule = kernel.SCHEDULE.bind(self.facts, self.state)
        self.figure = kernel.FIGURE.bind(self.facts, self.state)
        self.take = kernel.TAKE.bind(self.facts, self.state)
        self.walk = kernel.WALK.bind(self.facts, self.state)
        self.best, self.walked = math.inf, 0
        self.found: Start | None = None
        self.at_once = max(1, AT_ONCE // (16 * self.facts.stages**2 * self.facts.batches))

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
        self.bound, self.left = bound, moves
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
        return self.left <= 0 or self.best <= self.bound or self.stop()

    def sequence(self, keys: Any, sent: Any, *, strict: bool) -> tuple[Op, ...] | None:
        """Return the sequence of keys and offload decisions; None on deadlock."""
        self._set(keys, Choice(np.zeros_like(sent), sent))
        return self._listed(self.state.order[: int(self.state.used[0])]) if self.schedule(strict) else None

    def _set(self, keys: Any, choice: Choice) -> None:
        self.state.key[:], self.state.level[:], self.state.sent[:] = keys, choice.level, choice.part

    def _listed(self, order: Any) -> tuple[Op, ...]:
        stages = self.facts.stages
        return tuple((index // stages, index % stages, batch) for index, batch in order.tolist() if index >= 0)

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
        state = self.state
        for strict in ways:
            if self.left <= 0 or self.stop():
                return
            self._set(keys, choice)
            self.left -= 1
            figure = math.inf
            state.progress.best = self.best
            if self.schedule(strict):
                figure = self.figure()
                self.take(figure)
                self._offer_best()
            yield _Entry(figure, state.current.copy(), self._chosen(state.current_level, state.current_sent))

    @staticmethod
    def _chosen(level: IntArray, part: IntArray) -> Choice:
        return Choice(level.copy(), part.copy())

    def _walked(self, number: int, entry: _Entry, moves: int) -> _Entry:
        state, progress = self.state, self.state.progress
        state.current[:] = state.best[:] = entry.keys
        state.current_level[:] = state.best_level[:] = entry.choice.level
        state.current_sent[:] = state.best_sent[:] = entry.choice.part
        progress.current = progress.best = entry.figure
        heat = HEAT if self.hosting.several is None else HEATS[(number + self.walked) % len(HEATS)]
        self.walked += 1
        while moves > 0 and not self.over:
            part, before = min(moves, self.at_once, self.left), progress.moves
            self.walk(part, heat, float(self.bound))
            done = max(1, progress.moves - before)
            moves -= done
            self.left -= done
            self._offer_best()
        return _Entry(progress.best, state.best.copy(), self._chosen(state.best_level, state.best_sent))

    def _offer_best(self) -> None:
        """Offer the kernel's best schedule if it is better."""
        state = self.state
        if state.progress.best < self.best:
            self.best = state.progress.best
            sequence, choice = self._listed(state.best_order), self._chosen(state.best_level, state.best_sent)
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
