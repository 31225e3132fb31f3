"""`hiremate`: recomputation of large task graphs through a hierarchy of subgraphs with options.

Gusak et al. 2025, "HiRemate: hierarchical approach for efficient re-materialization of neural networks", ICML. The
forward graph is divided bottom to top into subgraphs of limited size. Each subgraph is solved for a grid of budgets, of
its peak and of the bytes that it saves between forward and backward. The undominated schedules are its options. The
graph of subgraphs is then solved in the same way, and each subgraph runs with one of its options, level by level.

Here, the parts are intervals of the reference order, a dynamic program over options (`levels`) replaces the integer
program, and the options of a leaf are its sets of saved values (`leaves`). Subgraphs that are equal up to names are
solved once. Everything is deterministic; the options bound the work.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from math import isqrt

import numpy as np
from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal
from remat_algorithms.dag.hierarchy.budget_search import BudgetSearch
from remat_algorithms.dag.hierarchy.leaves import leaf_options
from remat_algorithms.dag.hierarchy.levels import Level
from remat_algorithms.dag.hierarchy.network import Network, network_of
from remat_algorithms.dag.hierarchy.options import Option, Subgraph, even, on_grid, subgraph_of
from remat_algorithms.dag.hierarchy.partition import Part, partition
from remat_algorithms.dag.literature.baselines import runs_for
from remat_algorithms.dag.literature.retention_phases import Training, training_of
from remat_algorithms.dag.recompute import MOST_TASKS


class HiRemateOptions(Options):
    """Options of `hiremate`."""

    leaf: int = Field(
        default=0,
        ge=0,
        le=64,
        description="maximum number of forward tasks in a subgraph of the lowest level; 0: try 12, 24, 6 and 8",
    )
    width: int = Field(default=8, ge=2, le=64, description="maximum number of subgraphs of a subgraph")
    top: int = Field(default=24, ge=2, le=128, description="maximum number of subgraphs at the highest level")
    peaks: int = Field(default=4, ge=1, le=64, description="number of peak budgets for which each subgraph is solved")
    saves: int = Field(default=6, ge=1, le=64, description="number of budgets of saved bytes for each peak budget")
    slots: int = Field(
        default=500,
        ge=10,
        le=20_000,
        description="number of units into which each level divides its memory; more are more exact and slower",
    )


LEAVES = (12, 24, 6, 8)
"""Maximum lengths of leaves that are tried by default: no one is best for every graph."""


class Late(Exception):
    """The time is over."""


@dataclass
class Hierarchy:
    """The options of each part, and of parts that are equal to an earlier one."""

    network: Network
    options: HiRemateOptions
    context: Context
    known: dict[Hashable, list[Option]] = field(default_factory=dict)

    def level(self, part: Part, slots: int) -> Level:
        """Solve the parts of a part.

        Raises
        ------
        Late
        """
        whole = subgraph_of(self.network, part.low, part.high)
        parts = [subgraph_of(self.network, inner.low, inner.high) for inner in part.parts]
        return Level(whole, parts, [self.options_of(inner) for inner in part.parts], slots)

    def options_of(self, part: Part) -> list[Option]:
        """Return the options of a part, on the grid of budgets.

        Raises
        ------
        Late
        """
        if self.context.stopped:
            raise Late
        subgraph = subgraph_of(self.network, part.low, part.high)
        key = digest(subgraph), shape(part, part.low)
        if key not in self.known:
            found = self._inner_options(part) if part.parts else leaf_options(subgraph)
            self.known[key] = on_grid(found, self.options.peaks, self.options.saves)
        return self.known[key]

    def _inner_options(self, part: Part) -> list[Option]:
        level = self.level(part, self.options.slots)
        seen, found = set[tuple[int, ...]](), []
        for limit in even(least_limit(level), level.highest, self.options.peaks):
            descent = level.descent(limit)
            reached = np.flatnonzero(np.isfinite(descent.last)).tolist()
            if not reached:
                continue
            for most in even(reached[0], reached[-1], self.options.saves):
                held = int(np.argmin(descent.last[: most + 1]))
                runs = tuple(descent.runs(held))
                if runs not in seen:
                    seen.add(runs)
                    found.append(level.whole.option(runs))
        return found


def least_limit(level: Level) -> int:
    """Return the fewest slots within which the level has a schedule."""
    low, high = 0, level.highest
    while low < high:
        middle = (low + high) // 2
        if np.isfinite(level.descent(middle).last).any():
            high = middle
        else:
            low = middle + 1
    return low


def shape(part: Part, low: int) -> Hashable:
    """Return the cuts of a part, relative to a position."""
    return part.low - low, part.high - low, tuple(shape(inner, low) for inner in part.parts)


def digest(subgraph: Subgraph) -> Hashable:
    """Return what distinguishes a subgraph from others: its tasks, the values that they touch, and what stays."""
    network = subgraph.network
    numbers: dict[int, int] = {}
    rows = []
    for position in (*range(subgraph.low, subgraph.high), *subgraph.backward):
        touched = [
            -1 if value < 0 else numbers.setdefault(value, len(numbers))
            for value in (*network.reads[position], -1, *network.writes[position])
        ]
        may_rerun = position >= subgraph.high or network.may_rerun[position]
        facts = network.time[position], network.workspace[position], network.in_place[position], may_rerun
        rows.append((*facts, *touched))
    outputs, ends = set(subgraph.outputs), set(subgraph.ends)
    values = []
    for value in numbers:
        own, grown = network.counts(value, subgraph.low), network.made[value] >= network.forward
        reach = min(network.reach[value], subgraph.high) - subgraph.low if own and not grown else 0
        values.append((network.size[value], own, grown, value in outputs, value in ends, reach))
    return tuple(rows), tuple(values)


def evenly_spaced(training: Training) -> Iterator[list[int]]:
    """Yield evenly spaced checkpoints: every k-th task of n, for k = sqrt(n), half of it, and twice."""
    root = max(1, isqrt(training.forward))
    for step in dict.fromkeys((root, max(1, root // 2), 2 * root)):
        yield list(range(step - 1, training.forward, step))


def solve(problem: Problem, options: HiRemateOptions, context: Context) -> Proposal:
    """Solve a task graph level by level.

    Accepts instances of the kinds `chain`, `adjoint` and `dag`; uses the first processor and its memory. Claims
    makespan and peak. Schedules with evenly spaced checkpoints come first, since they need no search. The highest level
    is solved at several model budgets, and every schedule is replayed with the true sizes: the fastest one that fits is
    returned. O(n width slots) for each level, and O(runs) for each option.

    Raises
    ------
    OptionError
        If there are more than `MOST_TASKS` needed tasks.
    """
    training = training_of(problem, "hiremate", most=MOST_TASKS)
    search = BudgetSearch(problem, training, context)
    if search.without_reruns():
        return search.propose()
    network = network_of(training)
    if not network.forward:
        return search.propose()
    search.early(runs_for(training, points) for points in evenly_spaced(training))
    hierarchy = Hierarchy(network, options, context)
    for leaf in (options.leaf,) if options.leaf else LEAVES:
        try:
            plan = partition(network.cut_bytes, leaf, options.width, options.top)
            level = hierarchy.level(plan, 4 * options.slots)
            search.search(level, least_limit(level))
        except Late:
            break
    return search.propose()
