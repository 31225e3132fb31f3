"""The best plan with copies to the host so far, of one staging after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from remat.plugin import Context, Number, Problem, Steps
from remat_algorithms.parallel.pipeline.bounds import lower_bound
from remat_algorithms.parallel.pipeline.hosted.hosting import Hosting, Played
from remat_algorithms.parallel.pipeline.hosted.search import HostSearch
from remat_algorithms.parallel.pipeline.model import Lists, Op
from remat_algorithms.parallel.pipeline.pipe_search import search
from remat_algorithms.parallel.pipeline.stages import Staging

MORE = 5
"""Times as many schedules as orders without copies are searched in: there is more to choose."""

ROUNDS = 4
"""How often a device is given less room, where what is only passing does not fit beside what is kept."""


class BestSteps:
    """The quickest steps so far that fit; `makespan` may be that of other plans, which are to be beaten."""

    def __init__(self, problem: Problem, context: Context, makespan: Number | None = None) -> None:
        self.problem, self.context, self.makespan = problem, context, makespan
        self.steps: Steps | None = None
        self.excess: list[int] = []

    def consider(self, hosting: Hosting, sequence: Iterable[Op]) -> Played | None:
        """Play a sequence, and keep it if it fits and is better."""
        played = hosting.play(sequence)
        if played is None:
            return None
        if any(played.excess):
            self.excess = [max(pair) for pair in zip(played.excess, self.excess or played.excess, strict=True)]
        elif self.makespan is None or played.makespan < self.makespan:
            self.steps, self.makespan = played.steps, played.makespan
            self.context.report(played.steps, makespan=played.makespan)
        return played


ROOMIER: tuple[float | None, ...] = (1.5, 2.0, None)
"""Times as much room (None: any) in which orders are looked for whose rest is to wait at the host."""


def roomier(staged: Staging, times: float | None) -> Staging:
    """Return a staging whose devices have so many times as much room for micro-batches; None: for anything."""
    model = staged.model
    rooms = [
        None if times is None or free is None else fixed + int(times * free)
        for fixed, free in zip(model.fixed, model.free, strict=True)
    ]
    return replace(staged, model=replace(model, capacity=tuple(rooms)))


def search_hosted(
    best: BestSteps, staged: Staging, *, starts: Sequence[Lists], moves: int, stop: Callable[[], bool]
) -> None:
    """Search for orders of a staging with copies to the host; what only passes takes room from the next round on.

    It begins with given orders, the named ones, and the best for devices with more room.
    """
    if not staged.model.holds_fixed:
        return
    seed = best.context.seed
    begun = [*starts]
    for times in ROOMIER:
        other = roomier(staged, times)
        lists, _ = search(other.model, starts=other.starts, seed=seed, moves=moves, stop=stop)
        begun += [] if lists is None else [lists]
    begun += staged.starts
    hosting = Hosting(best.problem, staged)
    bound = lower_bound(roomier(staged, None).model) if staged.chained else 0.0
    for _ in range(ROUNDS):
        if stop() or not hosting.model.holds_fixed:
            return
        best.excess = []
        before = best.makespan
        HostSearch(hosting, seed=seed, stop=stop, offer=lambda seq, own=hosting: best.consider(own, seq)).run(  # type: ignore[misc]
            begun, MORE * moves, bound
        )
        if not any(best.excess[: hosting.model.devices]) or best.makespan != before:
            return
        hosting = hosting.tightened(best.excess)
