"""`swapadvisor`: a genetic search over the order of the runs and the values that may leave.

After Huang, Jin, Li 2020, "SwapAdvisor: pushing deep learning beyond the GPU memory limit via smart swapping". An
individual has a priority for each task and, for each value, whether it may leave:

- of the tasks whose inputs are ready, the one of highest priority runs next (chains have one order only);
- at each run that lacks memory, of the values that may leave and are not in use, the one with the furthest next use
  leaves, until the memory suffices; if that fails, every value may leave;
- the fitness is the makespan of the schedule, transfers placed.

With `allocation`, a third gene decides addresses. It is a number for each value, which is added to the binary logarithm
of its size. Best fit places the largest sums first. If the arena exceeds the budget, more values leave; an individual
whose addresses do not fit has no schedule. The paper's gene assigns the sizes of tensors to pools of equal blocks.

A child takes each gene from one of two parents, each the better of two random individuals, and a few of its genes
mutate. It replaces the worst individual if it is better.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from pydantic import Field

from remat.plugin import Context, Number, Options, Problem, Proposal, Termination, format_size
from remat_algorithms.offload.rules.memory_pool import lives_of, pooled
from remat_algorithms.offload.swaps.gap_selection import BestPlan, Choice, Plan
from remat_algorithms.offload.swaps.offload_proposals import REFERENCE_ORDER, nothing_fits, proposal_of
from remat_algorithms.offload.swaps.routes import Route, required_routes
from remat_algorithms.offload.swaps.swaps import Order

POPULATION = 16
"""Individuals."""

MOST, WORK = 400, 40_000
"""Default number of individuals: at most `MOST`, fewer if each is long."""

LAYOUT = 4
"""Individuals without addresses that take as long as one with addresses."""


class SwapadvisorOptions(Options):
    """Options of `swapadvisor`."""

    iterations: int | None = Field(
        None,
        ge=0,
        description="number of individuals after the initial one; if set, the result depends only on the seed. "
        "Default: up to 400, fewer on large graphs",
    )
    allocation: bool = Field(
        False, description="also search addresses, so that these fit the budget; default: only the bytes do"
    )


def solve(problem: Problem, options: SwapadvisorOptions, context: Context) -> Proposal:
    """Search orders and sets of values that may leave.

    Takes instances of kind `chain` or `dag`, on a machine with links out of the processor's memory and back. Gives the
    fastest schedule found. In the first individual, runs follow the reference order and every value may leave.

    Raises
    ------
    remat.OptionError
        If the machine has no link out, or none back.

    Notes
    -----
    O(runs gaps) for each individual.
    """
    search = _Search(problem, required_routes(problem, "swapadvisor"), context, allocation=options.allocation)
    search.look_at(search.first())
    count = options.iterations
    if count is None:
        count = min(MOST, WORK // max(1, len(search.reference.tasks)))
        if options.allocation:  # a layout takes as long as a few plans
            count //= LAYOUT
    draw = context.random()
    for number in range(count):
        if search.done:
            break
        search.look_at(search.varied(draw) if number + 1 < POPULATION else search.child(draw))
    if search.best is None:
        within = None if search.free else REFERENCE_ORDER
        found = nothing_fits(Choice(problem, search.reference, search.ways), "swapadvisor", within=within)
        no_layout = options.allocation and search.planned and found.least is None
        return Proposal(notes=("swapadvisor found no plan whose addresses fit",)) if no_layout else found
    notes = (f"the addresses take {format_size(search.arena, problem.units)}",) if options.allocation else ()
    proposal = proposal_of(search.best, context, source="swapadvisor", notes=notes)
    limited = options.iterations is not None and not context.stopped
    return replace(proposal, termination=Termination.ITERATION_LIMIT) if limited else proposal


@dataclass(frozen=True)
class Genes:
    """An individual: the priority of each run of the reference order, and whether each value may leave.

    `place` is added to the binary logarithm of each value's size; the largest sums get their addresses first. It is
    empty if addresses are not searched.
    """

    priority: tuple[float, ...]
    leaves: tuple[bool, ...]
    place: tuple[float, ...] = ()


class _Search(BestPlan):
    """The population and the best plan."""

    def __init__(self, problem: Problem, ways: tuple[Route, ...], context: Context, *, allocation: bool) -> None:
        super().__init__(problem, context)
        self.ways, self.allocation = ways, allocation
        self.planned, self.arena = False, 0  # whether some plan fits in bytes; the arena of the best one
        self.reference = Order.of(problem)
        self.population: list[tuple[Number, Genes]] = []
        self.seen: dict[tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]], Number] = {}

    @cached_property
    def free(self) -> bool:
        """Whether several orders may exist: no chain, and no value is written twice."""
        graph = self.problem.graph
        tasks = np.array(self.reference.tasks, dtype=np.int64)
        written = np.bincount(graph.writes.gather(tasks).items, minlength=len(graph.size))
        inputs = [place.value for place in graph.inputs]
        return self.problem.kind == "dag" and int(written.max(initial=0)) <= 1 and not written[inputs].any()

    def first(self) -> Genes:
        """Return the reference order, in which every value may leave."""
        count = len(self.reference.tasks)
        priority = tuple(1 - position / max(1, count) for position in range(count)) if self.free else ()
        count = len(self.problem.graph.values)
        return Genes(priority, (True,) * count, (0.0,) * count if self.allocation else ())

    def varied(self, draw: random.Random) -> Genes:
        """Return the first individual with many changes."""
        first = self.first()
        spread, share = draw.random(), draw.random() * 0.7
        priority = tuple(gene + draw.gauss(0, spread) for gene in first.priority)
        leaves = tuple(draw.random() >= share for _ in first.leaves)
        return Genes(priority, leaves, tuple(draw.gauss(0, spread) for _ in first.place))

    def child(self, draw: random.Random) -> Genes:
        """Return a child of two individuals."""
        one, other = self._parent(draw), self._parent(draw)
        few = 2 / max(2, len(one.leaves))
        priority = [draw.choice(pair) for pair in zip(one.priority, other.priority, strict=True)]
        leaves = [draw.choice(pair) for pair in zip(one.leaves, other.leaves, strict=True)]
        return Genes(
            tuple(gene + draw.gauss(0, 0.3) if draw.random() < few else gene for gene in priority),
            tuple(gene != (draw.random() < few) for gene in leaves),
            tuple(
                draw.choice(pair) + (draw.gauss(0, 1) if draw.random() < few else 0.0)
                for pair in zip(one.place, other.place, strict=True)
            ),
        )

    def look_at(self, genes: Genes) -> None:
        """Place an individual, and add it to the population if it is good enough."""
        makespan = self._makespan(genes)
        if len(self.population) < POPULATION:
            self.population.append((makespan, genes))
            return
        worst = max(range(POPULATION), key=lambda index: self.population[index][0])
        if makespan < self.population[worst][0]:
            self.population[worst] = (makespan, genes)

    def _parent(self, draw: random.Random) -> Genes:
        return min(draw.choice(self.population), draw.choice(self.population), key=lambda one: one[0])[1]

    def _makespan(self, genes: Genes) -> Number:
        """Return the makespan of an individual's schedule; infinite if it has none."""
        order = self.reference
        if self.free:
            order = Order(order.graph, order.machine, prioritised(order, genes.priority))
        choice = Choice(self.problem, order, self.ways)
        chosen = _evicted(choice, genes.leaves)
        if chosen is None:
            return float("inf")
        key = (tuple(order.tasks), tuple(chosen), genes.place)
        if key not in self.seen:
            plan = self._addressed(choice, genes) if genes.place else choice.plan(chosen)
            self.seen[key] = float("inf") if plan is None else plan.makespan
            self.consider(plan)
            if genes.place and plan is not None and self.best is plan:
                self.arena = self._arena(plan, genes)
        return self.seen[key]

    def _addressed(self, choice: Choice, genes: Genes) -> Plan | None:
        """Return a plan whose addresses fit."""

        def planned(tighter: Choice) -> Plan | None:
            plan = tighter.plan(_evicted(tighter, genes.leaves))
            self.planned |= plan is not None
            return plan

        return pooled(choice, planned, lambda plan: self._arena(plan, genes))

    def _arena(self, plan: Plan, genes: Genes) -> int:
        return lives_of(plan, self.problem).arena(np.array(genes.place))


def prioritised(order: Order, priority: Sequence[float]) -> list[int]:
    """Return the tasks of an order, each once its inputs are ready, the highest priority first.

    Parameters
    ----------
    order : Order
        It writes no value twice.
    priority : sequence of float
        Priority of each run.

    Returns
    -------
    list of int
    """
    graph = order.graph
    writer = {value: position for position, task in enumerate(order.tasks) for value in graph.writes[task].tolist()}
    before = [{writer[value] for value in graph.reads[task].tolist() if value in writer} for task in order.tasks]
    after: list[list[int]] = [[] for _ in order.tasks]
    missing = [len(row) for row in before]
    for position, row in enumerate(before):
        for earlier in row:
            after[earlier].append(position)
    ready = [(-priority[position], position) for position, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    tasks = []
    while ready:
        _, position = heapq.heappop(ready)
        tasks.append(order.tasks[position])
        for later in after[position]:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(ready, (-priority[later], later))
    return tasks


def _evicted(choice: Choice, leaves: Sequence[bool]) -> list[int] | None:
    """Return what leaves; if that is not enough, every value may leave."""
    chosen = evicted(choice, leaves)
    return evicted(choice, (True,) * len(leaves)) if chosen is None else chosen


def evicted(choice: Choice, leaves: Sequence[bool]) -> list[int] | None:
    """Return the gaps whose values leave: at each overfull run those of furthest next use; None if not enough."""
    if choice.fits:
        return []
    assert choice.budget is not None
    room = choice.budget - choice.profile
    gaps = choice.candidates
    may = np.array([leaves[choice.order.gaps[gap].value] for gap in gaps.tolist()], dtype=bool)
    left = gaps[may]
    chosen: list[int] = []
    for position in range(len(room)):
        while room[position] < 0:
            there = left[(choice.after[left] < position) & (choice.before[left] > position)]
            if not len(there):
                return None
            furthest = int(there[np.argmax(choice.before[there])])
            left = left[left != furthest]
            room[int(choice.after[furthest]) + 1 : int(choice.before[furthest])] += choice.size[furthest]
            chosen.append(furthest)
    return chosen
