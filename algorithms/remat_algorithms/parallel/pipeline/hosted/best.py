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


def unlimited(staged: Staging) -> Staging:
    """Return a staging whose devices have room for anything."""
    model = replace(staged.model, capacity=(None,) * staged.model.devices)
    return replace(staged, model=model)


def search_hosted(
    best: BestSteps, staged: Staging, *, starts: Sequence[Lists], moves: int, stop: Callable[[], bool]
) -> None:
    """Search for orders of a staging with copies to the host; what only passes takes room from the next round on.

    It begins with the named orders, and with the best for devices with room for anything.
    """
    free = unlimited(staged)
    seed = best.context.seed
    lists, _ = search(free.model, starts=free.starts, seed=seed, moves=moves, stop=stop)
    begun = (*starts, *(() if lists is None else (lists,)), *staged.starts)
    hosting = Hosting(best.problem, staged)
    bound = lower_bound(free.model) if staged.chained else 0.0
    for _ in range(ROUNDS):
        if stop() or min((free for free in hosting.model.free if free is not None), default=0) < 0:
            return
        best.excess = []
        before = best.makespan
        HostSearch(hosting, seed=seed, stop=stop, offer=lambda seq, own=hosting: best.consider(own, seq)).run(  # type: ignore[misc]
            begun, MORE * moves, bound
        )
        if not any(best.excess[: hosting.model.devices]) or best.makespan != before:
            return
        hosting = hosting.tightened(best.excess)
