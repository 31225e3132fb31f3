"""Local search over orders with copies to the host: which micro-batches go, when they return, and what runs when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from remat_algorithms.parallel.pipeline.halving import halve
from remat_algorithms.parallel.pipeline.hosted.hosting import Hosting, R
from remat_algorithms.parallel.pipeline.hosted.walk import Facts, State
from remat_algorithms.parallel.pipeline.layout import first_progress, start_keys, whole
from remat_algorithms.parallel.pipeline.model import B, F, Lists, Op, W, complete

HEAT = 1.0
"""Mean times of an operation by which a schedule that is taken may be longer than the present one."""

KEPT = 16
"""Orders that the walks begin with."""

AT_ONCE = 2_000_000
"""Operations times classes between two looks at whether to stop."""

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of what is worth sending that are sent at first."""

EARLY = (1.0, 2.0)
"""Ways back before its backward that a micro-batch returns at first."""

LARGEST = 2**62


class _Entry(NamedTuple):
    """Keys of an order, and who is sent."""

    figure: float
    keys: Any
    sent: Any


def facts_of(hosting: Hosting) -> Facts:
    """Lay out what stages take and may send away."""
    model, (out, back) = hosting.model, hosting.way
    stages = range(model.stages)
    forward, backward, weight, _ = model.times
    duration = np.array([*forward, *backward, *weight, *back], dtype=np.float64)
    activation, kept = model.activation, model.kept
    halves = [bool(time) for time in weight]
    given = [max(0, activation[s] - kept[s]) if halves[s] else activation[s] for s in stages]
    own = [stage for listed in model.on for stage in listed]
    work = duration[: 3 * model.stages].sum() * model.batches
    return Facts(
        duration=duration,
        device=np.array(list(model.place) * 4, dtype=np.int64),
        taken=np.array(
            [*activation, *(max(0, kept[s] - activation[s]) for s in stages), *[0] * len(own), *hosting.away],
            dtype=np.int64,
        ),
        given=np.array([*given, *kept], dtype=np.int64),
        delay=np.array(model.delays, dtype=np.float64),
        away=np.array(hosting.away, dtype=np.int64),
        out=np.array(out, dtype=np.float64),
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
    """Return room for walks."""
    classes, batches, devices = 4 * facts.stages, facts.batches, facts.devices
    most = classes * batches

    def times(*shape: int) -> Any:
        return np.zeros(shape, dtype=np.float64)

    return State(
        key=times(classes, batches),
        start=times(classes, batches),
        current=times(classes, batches),
        best=times(classes, batches),
        sent=whole(facts.stages, batches),
        current_sent=whole(facts.stages, batches),
        best_sent=whole(facts.stages, batches),
        end=times(classes, batches),
        gone=times(facts.stages, batches),
        done=whole(classes),
        possible=times(classes),
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
    """A search over the orders of one staging.

    Parameters
    ----------
    hosting : Hosting
    seed : int
    stop : callable
        Asked now and then whether to stop.
    offer : callable
        Receives better and better sequences.
    """

    def __init__(
        self, hosting: Hosting, *, seed: int, stop: Callable[[], bool], offer: Callable[[tuple[Op, ...]], object]
    ) -> None:
        # Compiled here, where there is something to search.
        from remat_algorithms.parallel.pipeline.hosted import walk_kernel as kernel

        self.hosting, self.stop, self.offer = hosting, stop, offer
        self.facts = facts_of(hosting)
        self.state = state_of(self.facts, seed)
        self.schedule = kernel.SCHEDULE.bind(self.facts, self.state)
        self.figure = kernel.FIGURE.bind(self.facts, self.state)
        self.take = kernel.TAKE.bind(self.facts, self.state)
        self.walk = kernel.WALK.bind(self.facts, self.state)
        self.best = math.inf
        self.at_once = max(1, AT_ONCE // (16 * self.facts.stages**2 * self.facts.batches))

    def run(self, starts: Sequence[Lists], moves: int, bound: float) -> float:
        """Search from orders that may take more room than there is; return the best makespan in the model's times.

        Parameters
        ----------
        starts : sequence of lists
        moves : int
            Schedules to make, at most.
        bound : float
            Where to stop.
        """
        self.bound, self.left = bound, moves
        found = {(e.keys.tobytes(), e.sent.tobytes()): e for e in self._begin(starts) if e.figure < math.inf}
        entries = sorted(found.values(), key=lambda entry: entry.figure)[:KEPT]
        halve(entries, moves, self._walked, lambda: self.over)
        return self.best

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do."""
        return self.left <= 0 or self.best <= self.bound or self.stop()

    def sequence(self, keys: Any, sent: Any, *, strict: bool) -> tuple[Op, ...] | None:
        """Return what comes of keys and of who is sent; None where that comes to no end."""
        self.state.key[:], self.state.sent[:] = keys, sent
        return self._listed(self.state.order[: int(self.state.used[0])]) if self.schedule(strict) else None

    def _listed(self, order: Any) -> tuple[Op, ...]:
        stages = self.facts.stages
        return tuple((index // stages, index % stages, batch) for index, batch in order.tolist() if index >= 0)

    def _begin(self, starts: Sequence[Lists]) -> Iterator[_Entry]:
        for lists in starts:
            every = [keys_of(self.hosting, lists, early) for early in EARLY]
            for share in SHARES:
                for keys in every:
                    if keys is None:
                        continue
                    sent = worth_sending(self.hosting, keys, share)
                    for strict in (True, False):
                        if self.left > 0 and not self.stop():
                            self.state.key[:], self.state.sent[:] = keys, sent
                            yield self._made(strict)

    def _made(self, strict: bool) -> _Entry:
        state = self.state
        self.left -= 1
        figure = math.inf
        state.progress.best = self.best
        if self.schedule(strict):
            figure = self.figure()
            self.take(figure)
            self._offer_best()
        return _Entry(figure, state.current.copy(), state.current_sent.copy())

    def _walked(self, _: int, entry: _Entry, moves: int) -> _Entry:
        state, progress = self.state, self.state.progress
        state.current[:] = state.best[:] = entry.keys
        state.current_sent[:] = state.best_sent[:] = entry.sent
        progress.current = progress.best = entry.figure
        while moves > 0 and not self.over:
            part, before = min(moves, self.at_once, self.left), progress.moves
            self.walk(part, HEAT, float(self.bound))
            done = max(1, progress.moves - before)
            moves -= done
            self.left -= done
            self._offer_best()
        return _Entry(progress.best, state.best.copy(), state.best_sent.copy())

    def _offer_best(self) -> None:
        """Offer what the kernel has, where it is better."""
        if self.state.progress.best < self.best:
            self.best = self.state.progress.best
            self.offer(self._listed(self.state.best_order))


def keys_of(hosting: Hosting, lists: Lists, early: float) -> Any:
    """Return the start times of lists on devices with room for anything; None where they come to no end.

    Returns stand so many times their way before their backwards.
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
    """Return which micro-batches to send away: of each device a share of what lives long enough, spread evenly.

    Parameters
    ----------
    hosting : Hosting
    keys : (classes, batches)
        Start times of an order.
    share : float
        Of the bytes that each device would send if all went that can be back in time; stages of the longest lives go
        first, of each stage micro-batches in even distances.

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
