"""`treewidth`: divide and conquer over a tree decomposition.

Kumar, Purohit, Svitkina, Vee and Wang 2019, "Efficient rematerialization for deep networks": a graph of n vertices and
treewidth k has a schedule of peak memory O(k log n). Some bag of a tree decomposition, a set X of at most k+1 vertices,
leaves components of at most half the vertices. To perform a set of tasks,

    perform(C):     choose X in C; for x in X, in order: make(x), and keep it; then perform each component of C - X
    make(x):        for each task p that x reads and that is not there: obtain(p) in its component of C - X; run x
    obtain(p, C):   choose X in C; for the x in X that p depends on, in order: make(x), and keep it;
                    then obtain p from its own component, and forget the x

With d the maximum number of inputs of a task, each level of the recursion keeps at most k+1+d more vertices. The
recursion has at most log2(n) + 1 levels:

    peak <= (k+1+d) (log2(n) + 1) + 1 vertices,    runs(n) <= n (d (k+1) + 2)^(log2(n) + 1).

A component of at most `leaf` tasks is performed in reference order, each task once. Leaves of all sizes n, n/2, ..., 1
are tried until schedules become too long. The fastest schedule that fits is returned. The largest leaf is keep-all, the
smallest is the paper's. The whole graph is decomposed, forward and backward alike, by the heuristics of networkx
(minimum degree, or minimum fill-in).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from remat.plugin import Context, OptionError, Options, Problem, Proposal
from remat_algorithms.dag.literature.fastest_that_fits import fastest
from remat_algorithms.dag.literature.retention import Stages, stages_of


class TreewidthOptions(Options):
    """Options of `treewidth`."""

    heuristic: Literal["min-degree", "min-fill-in"] = Field(
        "min-degree", description="heuristic of the tree decomposition"
    )
    longest: int = Field(
        100, ge=1, description="maximum mean number of runs per task; with more, smaller leaves are not tried"
    )


class TooLong(Exception):
    """The schedule has too many runs, or the context is stopped."""


@dataclass(frozen=True)
class Decomposition:
    """A tree decomposition of the undirected graph of stages.

    Attributes
    ----------
    bags : list of frozenset of int
    neighbours : list of lists of int
        The tree (or forest) over the bags.
    """

    bags: list[frozenset[int]]
    neighbours: list[list[int]]
    separators: dict[frozenset[int], tuple[int, ...]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Vertices in the largest bag, less one."""
        return max(map(len, self.bags), default=1) - 1

    def separator(self, part: frozenset[int]) -> tuple[int, ...]:
        """Return the vertices of a bag that leave components of at most half of a connected part, ascending.

        Repeatedly move from any bag towards the side that holds more than half of the part; this ends at a separating
        bag. O(bags * width).
        """
        known = self.separators.get(part)
        if known is not None:
            return known
        bag, came = next(index for index, content in enumerate(self.bags) if content & part), -1
        while True:
            heavy = None
            for other in self.neighbours[bag]:
                if other != came and 2 * len(self._behind(other, bag) & part - self.bags[bag]) > len(part):
                    heavy = other
            if heavy is None:
                break
            bag, came = heavy, bag
        found = tuple(sorted(self.bags[bag] & part))
        self.separators[part] = found
        return found

    def _behind(self, bag: int, away_from: int) -> frozenset[int]:
        """Return all vertices in the bags on one side of an edge of the tree."""
        key = (bag, away_from)
        if key not in self._sides:
            found: set[int] = set()
            path = [(bag, away_from)]
            while path:
                current, came = path.pop()
                found |= self.bags[current]
                path.extend((other, current) for other in self.neighbours[current] if other != came)
            self._sides[key] = frozenset(found)
        return self._sides[key]

    _sides: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)


def decompose(before: Sequence[Sequence[int]], heuristic: str) -> Decomposition:
    """Return a tree decomposition by a heuristic of networkx, with an order of bags that does not depend on hashing."""
    import networkx as nx
    from networkx.algorithms.approximation import treewidth_min_degree, treewidth_min_fill_in

    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(before)))
    graph.add_edges_from((other, vertex) for vertex, earlier in enumerate(before) for other in earlier)
    find = treewidth_min_degree if heuristic == "min-degree" else treewidth_min_fill_in
    _, tree = find(graph)
    bags = sorted(tree.nodes, key=sorted)
    number = {bag: index for index, bag in enumerate(bags)}
    return Decomposition(bags, [sorted(number[other] for other in tree.adj[bag]) for bag in bags])


class Pebbling:
    """The state of one schedule: completed stages, kept values, and runs.

    Parameters
    ----------
    before : sequence of sequences of int
        For each stage, the earlier ones that it reads from.
    repeatable : sequence of bool
        Stages that may be repeated; the values of the others are kept until the end.
    decomposition : Decomposition
    leaf : int
        Components of at most `leaf` stages run in order.
    most_runs : int
    context : Context
    """

    def __init__(
        self,
        before: Sequence[Sequence[int]],
        repeatable: Sequence[bool],
        decomposition: Decomposition,
        leaf: int,
        most_runs: int,
        context: Context,
    ) -> None:
        self.before, self.repeatable, self.decomposition = before, repeatable, decomposition
        self.leaf, self.most_runs, self.context = leaf, most_runs, context
        self.beside: list[list[int]] = [list(earlier) for earlier in before]
        for stage, earlier in enumerate(before):
            for other in earlier:
                self.beside[other].append(stage)
        self.runs: list[int] = []
        self.has_run = [False] * len(before)
        self.kept = [False] * len(before)

    def perform_all(self) -> list[int]:
        """Run everything at least once."""
        for part in self._components(frozenset(range(len(self.before)))):
            self._perform(part)
        return self.runs

    def _perform(self, part: frozenset[int]) -> None:
        """Run the remaining stages of a component whose neighbours are all kept (recursion: log2(n) levels)."""
        todo = [stage for stage in sorted(part) if not self.has_run[stage]]
        if not todo:
            return
        if len(part) <= self.leaf:
            self._in_order(part, todo)
            return
        separator = self.decomposition.separator(part)
        held = self._make_all(separator, part.difference(separator))
        for component in self._components(part.difference(separator)):
            self._perform(component)
        self._forget(held)

    def _obtain(self, goal: int, part: frozenset[int]) -> None:
        """Provide one stage of a component, keeping no others; neighbours that it depends on are kept."""
        if len(part) <= self.leaf:
            self._in_order(part, [goal])
            return
        separator = self.decomposition.separator(part)
        needed = self._ancestors([goal], part)
        inside = part.difference(separator)
        held = self._make_all([stage for stage in separator if stage in needed], inside)
        if not self.kept[goal]:
            component = next(found for found in self._components(inside) if goal in found)
            self._obtain(goal, component)
        self._forget([stage for stage in held if stage != goal])

    def _make_all(self, stages: Sequence[int], inside: frozenset[int]) -> list[int]:
        """Provide some stages in order, from the components that they leave; return those that it computed."""
        made = []
        for stage in stages:
            if self.kept[stage]:
                continue
            fetched = []
            for other in self.before[stage]:
                if not self.kept[other]:
                    component = next(found for found in self._components(inside) if other in found)
                    self._obtain(other, component)
                    fetched.append(other)
            self._run(stage)
            made.append(stage)
            self._forget(fetched)
        return made

    def _in_order(self, part: frozenset[int], goals: Sequence[int]) -> None:
        """Run the goals and their ancestors in a part in reference order; keep a single goal only."""
        there = []
        for stage in sorted(self._ancestors(goals, part)):
            self._run(stage)
            there.append(stage)
        self._forget(there if len(goals) != 1 else [stage for stage in there if stage != goals[0]])

    def _run(self, stage: int) -> None:
        if len(self.runs) >= self.most_runs or self.context.stopped:
            raise TooLong
        self.runs.append(stage)
        self.has_run[stage] = self.kept[stage] = True

    def _forget(self, stages: Iterable[int]) -> None:
        for stage in stages:
            self.kept[stage] = not self.repeatable[stage]

    def _ancestors(self, goals: Sequence[int], part: frozenset[int]) -> set[int]:
        """Return the goals and the ancestors in a part that are not kept."""
        found = {goal for goal in goals if not self.kept[goal]}
        frontier = sorted(found)
        while frontier:
            for other in self.before[frontier.pop()]:
                if other in part and not self.kept[other] and other not in found:
                    found.add(other)
                    frontier.append(other)
        return found

    def _components(self, part: frozenset[int]) -> list[frozenset[int]]:
        """Return the connected components of a set of stages, by their first stage."""
        left, found = set(part), []
        for start in sorted(part):
            if start not in left:
                continue
            left.discard(start)
            component, frontier = {start}, [start]
            while frontier:
                for other in self.beside[frontier.pop()]:
                    if other in left:
                        left.discard(other)
                        component.add(other)
                        frontier.append(other)
            found.append(frozenset(component))
        return found


def solve(problem: Problem, options: TreewidthOptions, context: Context) -> Proposal:
    """Return the fastest schedule that fits, over the sizes of the leaves.

    Raises
    ------
    remat.OptionError
        If a value has several writers among the needed tasks: the schedule leaves the reference order.
    """
    stages = stages_of(problem, "treewidth")
    _refuse_several_writers(stages)

    def schedules() -> Iterator[list[int] | None]:
        yield None
        decomposition = decompose(stages.before, options.heuristic)
        repeatable = [not stages.fixed[values].any() for values in stages.writes]
        leaf = len(stages)
        while leaf >= 1:
            most = options.longest * len(stages)
            try:
                pebbling = Pebbling(stages.before, repeatable, decomposition, leaf, most, context)
                yield [stages.tasks[stage] for stage in pebbling.perform_all()]
            except TooLong:
                return
            leaf //= 2

    return fastest(problem, stages, schedules(), context)


def _refuse_several_writers(stages: Stages) -> None:
    inputs = {place.value for place in stages.graph.inputs}
    seen: set[int] = set()
    for values in stages.writes:
        for value in values:
            if value in seen or value in inputs:
                raise OptionError(
                    f"treewidth leaves the reference order, and "
                    f"{stages.graph.values[value]!r} is written more than once",
                    argument="algorithm",
                )
            seen.add(value)
