"""The best plan with copies to the host so far, of one staging after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from remat.plugin import Context, Number, Problem, Steps
from remat_algorithms.parallel.pipeline.bounds import lower_bound
from remat_algorithms.parallel.pipeline.model import Lists, Op
from remat_algorithms.parallel.pipeline.offload.offload_model import Choice, Hosting, Played
from remat_algorithms.parallel.pipeline.offload.search import HostSearch, Start
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
        self.start: Start | None = None
        self.staged: Staging | None = None
        self.excess: list[int] = []

    def consider(self, hosting: Hosting, sequence: Iterable[Op], choice: Choice | None = None) -> Played | None:
        """Play a sequence, and keep it if it fits and is better."""
        listed = tuple(sequence)
        choice = hosting.plain(listed) if choice is None else choice
        played = hosting.play(listed, choice)
        if played is None:
            return None
        if any(played.excess):
            self.excess = [max(pair) for pair in zip(played.excess, self.excess or played.excess, strict=True)]
        elif self.makespan is None or played.makespan < self.makespan:
            self.steps, self.makespan = played.steps, played.makespan
            self.start, self.staged = Start(sequence=listed, choice=choice), hosting.staged
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
    best: BestSteps,
    staged: Staging,
    *,
    starts: Sequence[Lists],
    moves: int,
    stop: Callable[[], bool],
) -> None:
    """Search for orders of a staging with copies to the host.

    It begins with given orders, the named ones, and the best for devices with more room.
    """
    if staged.model.holds_fixed:
        begun = [*starts, *roomier_orders(staged, best.context.seed, moves, stop), *staged.starts]
        search_ways(best, Hosting(best.problem, staged), [Start(lists) for lists in begun], MORE * moves, stop)


def roomier_orders(staged: Staging, seed: int, moves: int, stop: Callable[[], bool]) -> Iterator[Lists]:
    """Yield the best orders that there are for devices with more room."""
    for times in ROOMIER:
        other = roomier(staged, times)
        lists, _ = search(other.model, starts=other.starts, seed=seed, moves=moves, stop=stop)
        if lists is not None:
            yield lists


def search_ways(
    best: BestSteps, hosting: Hosting, starts: Sequence[Start], moves: int, stop: Callable[[], bool]
) -> None:
    """Search for orders, and for what becomes of micro-batches; what only passes takes room from the next round on."""
    staged, seed = hosting.staged, best.context.seed
    bound = lower_bound(roomier(staged, None).model) if staged.chained else 0.0
    for _ in range(ROUNDS):
        if stop() or not hosting.model.holds_fixed:
            return
        best.excess = []
        before = best.makespan
        search = HostSearch(hosting, seed=seed, stop=stop, offer=partial(best.consider, hosting))
        search.run(starts, moves, bound)
        if not any(best.excess[: hosting.model.devices]) or best.makespan != before:
            return
        hosting = hosting.tightened(best.excess)
        if hosting.several is not None and search.found is not None:
            starts, moves = [search.found, *starts], moves // 2
