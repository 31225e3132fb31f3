"""`tflms`: whatever is not used for long leaves at once, and comes back with a run that the rule finds ahead of use.

After Le, Imai, Negishi, Kawachiya 2018, "TFLMS: large model support in TensorFlow by graph rewriting". Edges of the
graph whose two ends lie more than a threshold of runs apart are rewritten, the longest first: the copy out follows the
run before the edge, and the copy back waits for a run on which its use depends, between `ahead` (their lower bound) and
`upper` runs before it. Two strategies find that run:

- `direct-order` goes back from the use, one run at a time, from the lower bound on;
- `chain-rule` goes forward from the run before the edge, level by level: of each run that it meets, it looks at those
  of the backward that read what it makes.

If neither bound can be met, the copy comes back with the run at the lower bound. `grouped` swap-ins serve all later
uses: of each value only the gap from forward to backward is rewritten, so that it comes back once.

The authors tune these by hand. What is left open is searched here: both strategies, with lower bounds of 1, 2, 4 and 8
runs, single and grouped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np
from pydantic import Field

from remat.plugin import Context, IntArray, Options, Problem, Proposal
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits, rule_proposal
from remat_algorithms.offload.swaps.routes import required_routes
from remat_algorithms.offload.swaps.swaps import Order
from remat_algorithms.offload.swaps.value_copies import Swap

BACKWARD = "backward"
LOWER_BOUNDS = (1, 2, 4, 8)

MOST_RUNS = 10_000
"""Of longer orders, only the first lower bound is tried, and no run is looked for on which a use depends."""

Strategy = Literal["direct-order", "chain-rule"]
STRATEGIES: tuple[Strategy, ...] = ("direct-order", "chain-rule")


class TflmsOptions(Options):
    """Options of `tflms`."""

    threshold: int | None = Field(
        None, ge=1, description="runs; only longer gaps leave. Default: the most with which the budget holds"
    )
    ahead: int | None = Field(
        None,
        ge=0,
        description="fewest runs before its use with which a value comes back; 0: as early as it is in nobody's way. "
        "Default: the best of 1, 2, 4 and 8",
    )
    upper: int = Field(10_000, ge=1, description="most runs before its use with which a value comes back")
    strategy: Strategy | None = Field(
        None, description="how the run is found that a copy back waits for; default: the better one"
    )
    grouped: bool | None = Field(
        None, description="a value comes back once, for all later uses; default: whichever is quicker"
    )
    tensors: int | None = Field(None, ge=0, description="most gaps that leave, the longest first; default: no limit")


def solve(problem: Problem, options: TflmsOptions, context: Context) -> Proposal:
    """Offload all gaps longer than a threshold.

    Takes instances of kind `chain` or `dag`, on a machine with a way out of the processor's memory and back. Gives the
    schedule of the given threshold, or of the largest one that fits; of several rules the quickest schedule.

    Raises
    ------
    remat.OptionError
        If the machine has no way out, or none back.

    Notes
    -----
    O((runs + gaps) log gaps) for each rule, and O(runs^2 / 64) once to know what depends on what.
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
    # What all rules need at least is what the one that needs least needs.
    leanest = min(nearest, key=lambda swaps: int(order.profile(swaps).max(initial=0)))
    return rule_proposal(order, order.program(leanest), None, "tflms", context)


def _rules(options: TflmsOptions, runs: int) -> Iterator[tuple[Strategy, int, bool]]:
    """Yield strategy, lower bound and whether swap-ins are grouped, the plainest first."""
    strategies = STRATEGIES if options.strategy is None else (options.strategy,)
    bounds = LOWER_BOUNDS if options.ahead is None else (options.ahead,)
    groupings = (False, True) if options.grouped is None else (options.grouped,)
    if runs > MOST_RUNS:
        strategies, bounds, groupings = strategies[:1], bounds[:1], groupings[:1]
    for grouped, ahead, strategy in product(groupings, bounds, strategies):
        yield strategy, ahead, grouped


class Triggers:
    """With which run each gap's value comes back."""

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
        # A value that would come back with the first run of its gap stays.
        found = found[spans[found] > ahead + 1] if ahead else found
        if grouped:
            found = found[(choice.after[found] < self.backward) & (choice.before[found] >= self.backward)]
        return found[np.argsort(-spans[found], kind="stable")]

    def trigger(self, gap: int, ahead: int, strategy: Strategy) -> int:
        """Return the run with which a gap's value comes back; -1: as early as it is in nobody's way."""
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
        """For each run those that read what it makes."""
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
        """For each run those that depend on it, as bits."""
        behind = [0] * self.runs
        for run in range(self.runs - 1, -1, -1):
            for reader in self._readers[run]:
                behind[run] |= behind[reader] | 1 << reader
        return behind


def _first_fitting(
    choice: Choice, longest: list[int], counts: Sequence[int], triggers: dict[int, int], stopped: Callable[[], bool]
) -> tuple[Plan | None, list[Swap] | None]:
    """Return the plan of the fewest gaps that fit, or, without a plan, the swaps that come nearest to it.

    Once `stopped` is true, of more gaps: the fewest that are known to fit.
    """
    # What leaves only ever makes room in the processor's memory, so that the fewest gaps are found by bisection.
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
