"""Incumbent of plans with host offloading, over a sequence of stagings."""

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
"""Factor of schedules tried, compared to orders without offloading: the search space is larger."""

ROUNDS = 4
"""Maximum number of retries with less memory per device, when transient values do not fit along with the kept ones."""


class BestSteps:
    """Fastest feasible steps found; `makespan` may be that of another plan, which they must beat."""

    def __init__(self, problem: Problem, context: Context, makespan: Number | None = None) -> None:
        self.problem, self.context, self.makespan = problem, context, makespan
        self.steps: Steps | None = None
        self.start: Start | None = None
        self.staged: Staging | None = None
        self.excess: list[int] = []

    def consider(self, hosting: Hosting, sequence: Iterable[Op], choice: Choice | None = None) -> Played | None:
        """Simulate a sequence, and keep it if it fits and is better."""
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
"""Memory factors (None: unlimited) for orders whose excess activations are to be offloaded."""


def roomier(staged: Staging, times: float | None) -> Staging:
    """Return a staging whose devices have `times` as much memory for micro-batches; None means unlimited."""
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
    """Search for orders of a staging with host offloading.

    The starting points are the given orders, the named ones, and the best ones for devices with more memory.
    """
    if staged.model.holds_fixed:
        begun = [*starts, *roomier_orders(staged, best.context.seed, moves, stop), *staged.starts]
        search_ways(best, Hosting(best.problem, staged), [Start(lists) for lists in begun], MORE * moves, stop)


def roomier_orders(staged: Staging, seed: int, moves: int, stop: Callable[[], bool]) -> Iterator[Lists]:
    """Yield the best orders found for devices with more memory."""
    for times in ROOMIER:
        other = roomier(staged, times)
        lists, _ = search(other.model, starts=other.starts, seed=seed, moves=moves, stop=stop)
        if lists is not None:
            yield lists


def search_ways(
    best: BestSteps, hosting: Hosting, starts: Sequence[Start], moves: int, stop: Callable[[], bool]
) -> None:
    """Search for orders and offload choices; each round reserves memory for the last round's transient values."""
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
