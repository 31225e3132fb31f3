"""`knapsack-dp`, `knapsack-ilp`, `knapsack-greedy`: PyTorch's activation-memory-budget partitioner.

Saving everything that the backward reads costs no recomputation. Each forward task whose values the backward reads is
an item. Its weight is the bytes that the backward reads of it, its value the time to recompute it. A knapsack of W
bytes chooses the items to save, for maximum total time. The others may be recomputed, and `min-cut` decides which
further values are saved for them.

W is a budget of saved bytes, whereas the budget here limits the true peak. A fixed set of W is tried, and the fastest
schedule that fits is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pydantic import Field

from remat.plugin import Context, Number, Options, Problem, Proposal
from remat_algorithms.dag.literature.fastest_that_fits import fastest
from remat_algorithms.dag.literature.min_cut import minimum_cut
from remat_algorithms.dag.literature.retention_phases import Training, training_of
from remat_algorithms.kit.programs.program import ProgramBuilder
from remat_algorithms.kit.programs.solvers import solve_program

MOST_STATES = 30_000
"""Maximum number of states of the dynamic programme before bytes are rounded up."""

GAP = 1e-7
"""Relative gap of the integer programme: below it, only equal items differ."""

Chooser = Callable[[Sequence[int], Sequence[Number], Sequence[int], Context], Iterator[list[int]]]
"""(weights, values, descending limits, context) -> the chosen items for each limit."""


class KnapsackOptions(Options):
    """Options of the knapsack algorithms."""

    levels: int = Field(64, ge=1, le=10_000, description="number of budgets of saved bytes to try, evenly spaced")


def items_of(training: Training) -> tuple[list[int], list[int], list[Number]]:
    """Return the stages that are items, their weights (bytes) and their values (time)."""
    stages, items, weights = training.stages, [], []
    for stage in range(training.forward):
        read = [v for v in stages.writes[stage] if training.backward_uses[v] and not stages.fixed[v]]
        if read:
            items.append(stage)
            weights.append(sum(stages.size[value] for value in read))
    return items, weights, [stages.time[stage] for stage in items]


def _solve(problem: Problem, name: str, options: KnapsackOptions, choose: Chooser, context: Context) -> Proposal:
    training = training_of(problem, name)
    items, weights, values = items_of(training)
    total = sum(weights)
    limits = sorted({total * step // options.levels for step in range(options.levels + 1)}, reverse=True)

    def schedules() -> Iterator[list[int] | None]:
        yield None
        seen = set()
        for chosen in choose(weights, values, limits, context):
            if (key := tuple(chosen)) in seen:
                continue
            seen.add(key)
            _, saved = minimum_cut(training, [items[k] for k in chosen])
            yield training.stages.runs(training.saved(saved))

    return fastest(problem, training.stages, schedules(), context)


def choose_greedily(
    weights: Sequence[int], values: Sequence[Number], limits: Sequence[int], context: Context
) -> Iterator[list[int]]:
    """Take items by value per byte while they fit. O(items) for each limit."""
    ratio = [value / weight if weight else float("inf") for weight, value in zip(weights, values, strict=True)]
    order = sorted(range(len(weights)), key=lambda k: (-ratio[k], k))
    for limit in limits:
        chosen, used = [], 0
        for k in order:
            if used + weights[k] <= limit:
                chosen.append(k)
                used += weights[k]
        yield sorted(chosen)


def choose_by_states(
    weights: Sequence[int], values: Sequence[Number], limits: Sequence[int], context: Context
) -> Iterator[list[int]]:
    """Choose by a dynamic programme over undominated (bytes, time) states (Nemhauser and Ullmann 1969).

    The states after item k are those before, and each of them with item k added. Dominated states are removed. One list
    answers all limits. O(items * states). Exact up to `MOST_STATES`. Above it, bytes are rounded up to that many steps,
    which keeps every choice within its limit.
    """
    import numpy as np

    exact = all(isinstance(value, int) for value in values)
    used = np.zeros(1, dtype=np.int64)
    saved = np.zeros(1, dtype=np.int64 if exact else np.float64)
    origins = []
    grain = 1
    for weight, value in zip(weights, values, strict=True):
        if context.stopped:
            return
        count = len(used)
        if count > MOST_STATES:
            grain = max(grain, -(-sum(weights) // MOST_STATES))
        both = np.concatenate((used, -(-(used + weight) // grain) * grain))
        gain = np.concatenate((saved, saved + value))
        order = np.lexsort((-gain, both))
        best = np.maximum.accumulate(gain[order])
        kept = order[np.concatenate(([True], best[1:] > best[:-1]))]
        origins.append((kept % count, kept >= count))
        used, saved = both[kept], gain[kept]
    for limit in limits:
        state = int(np.searchsorted(used, limit, side="right")) - 1
        chosen = []
        for k in range(len(weights) - 1, -1, -1):
            before, taken = origins[k]
            if taken[state]:
                chosen.append(k)
            state = int(before[state])
        yield chosen[::-1]


def choose_by_programme(
    weights: Sequence[int], values: Sequence[Number], limits: Sequence[int], context: Context
) -> Iterator[list[int]]:
    """Choose by an integer programme (OR-Tools, SCIP): max sum v_g x_g, sum w_g x_g <= W, 0 <= x_g <= n_g integer.

    Equal items form one kind g, of which x_g are taken, the last ones first. The solver computes in float64. If its
    choice exceeds the limit in exact bytes, the least valuable items are removed.
    """
    kinds: dict[tuple[int, Number], list[int]] = {}
    for k, kind in enumerate(zip(weights, values, strict=True)):
        kinds.setdefault(kind, []).append(k)
    total, most = max(1, sum(weights)), max([1e-300, *map(float, values)])
    chosen: list[int] | None = None
    for limit in limits:
        if context.stopped:
            return
        if chosen is not None and sum(weights[k] for k in chosen) <= limit:
            yield chosen  # the best choice for more bytes fits here, too
            continue
        # Shares of the whole, because byte counts exceed the solver's tolerances.
        program = ProgramBuilder()
        row = [
            (program.add_column(cost=-value / most, upper=len(items), integer=True), 1e6 * weight / total)
            for (weight, value), items in kinds.items()
        ]
        program.add_row(row, upper=1e6 * limit / total)
        answer = solve_program(program.build(), "scip", context, gap=GAP)
        if answer.solution is None:
            return
        counts = [round(count) for count in answer.values]
        chosen = [k for items, n in zip(kinds.values(), counts, strict=True) for k in items[len(items) - n :]]
        while sum(weights[k] for k in chosen) > limit:
            chosen.remove(min(chosen, key=lambda k: (values[k], k)))
        chosen.sort()
        yield chosen


def solve_dp(problem: Problem, options: KnapsackOptions, context: Context) -> Proposal:
    """Choose the saved values by dynamic programming; O(items * states), then a minimum cut for each W."""
    return _solve(problem, "knapsack-dp", options, choose_by_states, context)


def solve_ilp(problem: Problem, options: KnapsackOptions, context: Context) -> Proposal:
    """Choose the saved values by an integer programme for each W."""
    return _solve(problem, "knapsack-ilp", options, choose_by_programme, context)


def solve_greedy(problem: Problem, options: KnapsackOptions, context: Context) -> Proposal:
    """Choose the saved values by time per byte; O(items) for each W, then a minimum cut."""
    return _solve(problem, "knapsack-greedy", options, choose_greedily, context)
