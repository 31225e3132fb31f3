"""Selection of the fastest candidate schedule that fits the budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from remat.plugin import Context, LeastBudget, Problem, Proposal, Termination
from remat_algorithms.dag.literature.retention import Replay, Stages
from remat_algorithms.kit.incumbent import Incumbent

Runs = Sequence[int]


def whole(stages: Stages) -> list[int]:
    """Return the runs without recomputation."""
    everything = stages.nothing_held()
    everything[:] = True
    return stages.runs(everything)


def fits(stages: Stages, peak: int) -> bool:
    """Whether a peak is within the budget."""
    return stages.capacity is None or peak <= stages.capacity


def fastest(problem: Problem, stages: Stages, candidates: Iterable[Runs | None], context: Context) -> Proposal:
    """Return the fastest candidate that fits; the schedule without recomputation if that fits.

    The candidates must not depend on the budget. More memory then never gives a longer schedule.

    Parameters
    ----------
    problem : Problem
    stages : Stages
    candidates : iterable of lists of tasks
        Built one by one, until the context is stopped; None (a sign that time passes) is skipped.
    context : Context

    Returns
    -------
    Proposal
        Claims time and peak. Without steps if nothing fits.
    """
    once = whole(stages)
    replay = stages.replay(once)
    if fits(stages, replay.peak):
        return Proposal(steps=replay.steps, makespan=replay.time, peak=replay.peak)
    kept = Incumbent[Replay](context, lambda replay: replay.steps)
    seen = {tuple(once)}
    least = replay.peak
    for runs in _until_stopped(candidates, context):
        if runs is None or (key := tuple(runs)) in seen:
            continue
        seen.add(key)
        replay = stages.replay(stages.useful(runs))
        least = min(least, replay.peak)
        if fits(stages, replay.peak):
            kept.take(replay, replay.time, rank=(replay.time, replay.peak))
    stopped = context.termination if context.stopped else Termination.COMPLETED
    if (best := kept.best) is not None:
        return Proposal(steps=best.steps, makespan=best.time, peak=best.peak, termination=stopped)
    if stopped is not Termination.COMPLETED:
        return Proposal(termination=stopped)
    # The same candidates are tried at every budget, so this one will be found again.
    named = LeastBudget(least, None, True, problem.machine.processors[0].memory)
    return Proposal(least=named, notes=(f"the smallest of {len(seen)} schedules needs {least}",))


def _until_stopped(candidates: Iterable[Runs | None], context: Context) -> Iterator[Runs | None]:
    iterator = iter(candidates)
    while not context.stopped:
        try:
            yield next(iterator)
        except StopIteration:
            return
