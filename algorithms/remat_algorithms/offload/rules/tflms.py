"""`tflms`: values with long gaps leave at once, and return with a run that the rule finds ahead of their use.

After Le, Imai, Negishi, Kawachiya 2018, "TFLMS: large model support in TensorFlow by graph rewriting". Edges of the
graph that span more runs than a threshold are rewritten, the longest first. The copy out follows the run before the
edge. The copy back waits for a run on which its use depends, between `ahead` (their lower bound) and `upper` runs
before it. Two strategies find that run:

- `direct-order` goes back from the use, one run at a time, from the lower bound on;
- `chain-rule` goes forward from the run before the edge, level by level. For each run that it meets, it examines the
  runs of the backward that read its outputs.

If neither bound can be met, the copy returns with the run at the lower bound. `grouped` swap-ins serve all later uses:
of each value only the gap from forward to backward is rewritten, and the value returns once.

The authors tune these by hand. Here, a search covers the open options: both strategies, with lower bounds of 1, 2, 4
and 8 runs, single and grouped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np
from pydantic import Field

from remat.plugin import Context, IntArray, LeastBudget, Options, Problem, Proposal
from remat_algorithms.offload.swaps.dispatch import Dispatched, Overfull
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits, rule_proposal
from remat_algorithms.offload.swaps.only_program import dispatch_only
from remat_algorithms.offload.swaps.routes import required_routes
from remat_algorithms.offload.swaps.swaps import Order
from remat_algorithms.offload.swaps.value_copies import Swap

BACKWARD = "backward"
LOWER_BOUNDS = (1, 2, 4, 8)

MOST_RUNS = 10_000
"""For longer orders, only the first lower bound is tried, without a search for a run on which a use depends."""

Strategy = Literal["direct-order", "chain-rule"]
STRATEGIES: tuple[Strategy, ...] = ("direct-order", "chain-rule")


class TflmsOptions(Options):
    """Options of `tflms`."""

    threshold: int | None = Field(
        None,
        ge=1,
        description="offload only gaps of more runs than this; default: the largest threshold that fits the budget",
    )
    ahead: int | None = Field(
        None,
        ge=0,
        description="minimum number of runs between the fetch of a value and its use; 0: fetch as early as possible "
        "without delaying another step. Default: the best of 1, 2, 4 and 8",
    )
    upper: int = Field(10_000, ge=1, description="maximum number of runs between the fetch of a value and its use")
    strategy: Strategy | None = Field(
        None, description="rule that selects the run for which a fetch waits; default: the better of both"
    )
    grouped: bool | None = Field(
        None, description="fetch each value once, for all later uses; default: the faster of both choices"
    )
    tensors: int | None = Field(
        None, ge=0, description="maximum number of gaps to offload, the longest first; default: no limit"
    )


def solve(problem: Problem, options: TflmsOptions, context: Context) -> Proposal:
    """Offload all gaps longer than a threshold.

    Takes instances of kind `chain` or `dag`, on a machine with links out of the processor's memory and back. Gives the
    schedule of the given threshold, or of the largest one that fits; of several rules, the fastest schedule.

    Raises
    ------
    remat.OptionError
        If the machine has no link out, or none back.

    Notes
    -----
    O((runs + gaps) log gaps) for each rule, and O(runs^2 / 64) once for the dependencies.
    """
    order = Order.of(problem)
    choice = Choice(problem, order, required_routes(problem, "tflms"))
    finder = Triggers(choice, options.upper)
    best: tuple[Plan, list[Swap]] | None = None
    failed: list[list[Swap] | None] = []
    tried: set[tuple[tuple[int, int], ...]] = set()
    for strategy, ahead, grouped in _rules(options, len(order.tasks)):
        longest = finder.gaps(ahead, grouped=grouped)[: options.tensors]
        triggers = {gap: finder.trigger(gap, ahead, strategy) for gap in longest.tolist()}
        key = tuple(triggers.items())
        if key in tried or (tried and context.stopped):
            continue
        tried.add(key)
        spans = choice.before - choice.after
        if options.threshold is not None:
            counts = [int(np.count_nonzero(spans[longest] > options.threshold))]
        else:
            # One gap more at a threshold just below each length; spans descend.
            counts = [0, *(np.flatnonzero(np.diff(spans[longest])) + 1).tolist(), len(longest)]
        plan, swaps = _first_fitting(choice, longest.tolist(), counts, triggers, lambda: context.stopped)
        if plan is None or swaps is None:
            failed.append(swaps)
        elif best is None or plan.makespan < best[0].makespan:
            best = plan, swaps
    if best is not None:
        return rule_proposal(order, order.program(best[1]), best[0], "tflms", context)
    nearest = [swaps for swaps in failed if swaps is not None]
    if len(nearest) < len(failed):
        return nothing_fits(choice, "tflms")
    return _in_time(order, nearest, context)


def _in_time(order: Order, failed: Sequence[list[Swap]], context: Context) -> Proposal:
    """Propose the fastest of the programs whose profiles exceed the budget and that fit all the same."""
    outcomes = [dispatch_only(order.graph, order.machine, order.program(swaps)) for swaps in failed]
    fitting = [outcome for outcome in outcomes if isinstance(outcome, Dispatched)]
    if fitting:
        fastest = min(fitting, key=lambda outcome: outcome.makespan)
        return Proposal(steps=fastest.steps, makespan=fastest.makespan, termination=context.termination)
    overfull = [outcome for outcome in outcomes if isinstance(outcome, Overfull) and outcome.needed]
    if not overfull:
        return Proposal(notes=("tflms: the memories wait for each other",), termination=context.termination)
    one = min(overfull, key=lambda outcome: outcome.needed)
    least = LeastBudget(one.needed, order.task_at(one.position), sufficient=True, memory=one.memory)
    return Proposal(least=least, termination=context.termination)


def _rules(options: TflmsOptions, runs: int) -> Iterator[tuple[Strategy, int, bool]]:
    """Yield strategy, lower bound and whether swap-ins are grouped, the simplest first."""
    strategies = STRATEGIES if options.strategy is None else (options.strategy,)
    bounds = LOWER_BOUNDS if options.ahead is None else (options.ahead,)
    groupings = (False, True) if options.grouped is None else (options.grouped,)
    if runs > MOST_RUNS:
        strategies, bounds, groupings = strategies[:1], bounds[:1], groupings[:1]
    for grouped, ahead, strategy in product(groupings, bounds, strategies):
        yield strategy, ahead, grouped


class Triggers:
    """The run with which each gap's value returns."""

    def __init__(self, choice: Choice, upper: int) -> None:
        self.choice, self.upper = choice, upper
        graph, tasks = choice.problem.graph, choice.order.tasks
        self.runs = len(tasks)
        phases = None if graph.phase is None else [graph.phase[task] for task in tasks]
        peak = int(choice.profile.argmax()) if self.runs else 0
        self.backward = phases.index(BACKWARD) if phases is not None and BACKWARD in phases else peak
        """The first run of the backward: without phases, the fullest one."""

    def gaps(self, ahead: int, *, grouped: bool) -> IntArray:
        """Return the gaps that may leave, the longest first."""
        choice = self.choice
        spans, found = choice.before - choice.after, choice.candidates
        # A value that would return with the first run of its gap stays.
        found = found[spans[found] > ahead + 1] if ahead else found
        if grouped:
            found = found[(choice.after[found] < self.backward) & (choice.before[found] >= self.backward)]
        return found[np.argsort(-spans[found], kind="stable")]

    def trigger(self, gap: int, ahead: int, strategy: Strategy) -> int:
        """Return the run with which a gap's value returns; -1: as early as it obstructs no other step."""
        if not ahead:
            return -1
        after, before = int(self.choice.after[gap]), int(self.choice.before[gap])
        latest, earliest = before - ahead, max(after + 1, before - self.upper)
        if before >= self.runs or self.runs > MOST_RUNS:
            return latest
        if strategy == "direct-order":
            return next((run for run in range(latest, earliest - 1, -1) if self._leads(run, before)), latest)
        return self._by_chain_rule(after, before, earliest, latest)

    def _by_chain_rule(self, after: int, before: int, earliest: int, latest: int) -> int:
        level = [after] if after >= 0 else []
        seen = set(level)
        while level:
            found = [
                run
                for one in level
                for run in self._readers[one]
                if run >= self.backward and earliest <= run <= latest and self._leads(run, before)
            ]
            if found:
                return max(found)
            near = sorted({run for one in level for run in self._readers[one] if run < self.backward} - seen)
            seen.update(near)
            level = near
        return latest

    def _leads(self, run: int, use: int) -> bool:
        """Whether a use depends on a run."""
        return bool(self._behind[run] >> use & 1)

    @cached_property
    def _readers(self) -> list[list[int]]:
        """For each run the runs that read its outputs."""
        graph, tasks = self.choice.problem.graph, self.choice.order.tasks
        reads, writes = graph.reads.to_lists(), graph.writes.to_lists()
        latest: dict[int, int] = {}
        readers: defaultdict[int, set[int]] = defaultdict(set)
        for run, task in enumerate(tasks):
            for value in reads[task]:
                if value in latest:
                    readers[latest[value]].add(run)
            latest.update(dict.fromkeys(writes[task], run))
        return [sorted(readers[run]) for run in range(len(tasks))]

    @cached_property
    def _behind(self) -> list[int]:
        """For each run its descendants, as bits."""
        behind = [0] * self.runs
        for run in range(self.runs - 1, -1, -1):
            for reader in self._readers[run]:
                behind[run] |= behind[reader] | 1 << reader
        return behind


def _first_fitting(
    choice: Choice, longest: list[int], counts: Sequence[int], triggers: dict[int, int], stopped: Callable[[], bool]
) -> tuple[Plan | None, list[Swap] | None]:
    """Return the plan of the fewest gaps that fit, or, without a plan, the swaps that come nearest to it.

    After a stop, return more gaps: the fewest that are known to fit.
    """
    # Offloading more gaps only frees memory of the processor, so bisection finds the fewest gaps.
    low, high = 0, len(counts) - 1
    while low < high and not stopped():
        middle = (low + high) // 2
        if _fits(choice, _swaps(choice, longest[: counts[middle]], triggers)):
            high = middle
        else:
            low = middle + 1
    low = high
    nearest = _swaps(choice, longest[: counts[low]], triggers)
    if not _fits(choice, nearest):
        return None, nearest
    for count in counts[low:]:
        routed = choice.routed(longest[:count])
        if routed is None:
            return None, None
        swaps = [Swap(gap=swap.gap, route=swap.route, return_with=triggers[swap.gap]) for swap in routed]
        plan = choice.dispatched(swaps)
        if plan is not None:
            return plan, swaps
        nearest = swaps
    return None, nearest


def _fits(choice: Choice, swaps: list[Swap]) -> bool:
    return choice.budget is None or int(choice.order.profile(swaps).max(initial=0)) <= choice.budget


def _swaps(choice: Choice, gaps: list[int], triggers: dict[int, int]) -> list[Swap]:
    return [Swap(gap=gap, route=choice.routes[0], return_with=triggers[gap]) for gap in gaps]
