"""`pipe-plan`: stages, their order, and the recomputation of each micro-batch, planned together; anytime.

1. Outlines: layers cut evenly onto places (one stage per device, two in a V, interleaved, in a W), and the cuts of
   other planners. The recompute options of each stage are a list of levels (`recompute_options`), shared by stages of
   equal layers.
2. The orders of the named rules for these places, each with the minimum recomputation that fits (`search`).
3. Local search over orders and levels at once (`search`): first a share of the moves for all outlines, then the
   rest for the best two.
4. Each result is placed and compared by its true makespan. If transient values do not fit next to the others, the
   missing bytes of that device are left free, and the search continues.
5. Recomputation without a gain is removed (`needless`).
6. If devices have a host, offloading to it is searched together with recomputation (`recompute_and_offload`), from the
   results of either alone.

Other planners and rules also run: the answer is never slower than any of their schedules that fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Literal, TypeAlias

import numpy as np
from pydantic import Field

from remat.plugin import (
    ALL_SCHEDULES,
    LAYERS_WHOLE,
    PARAMETERS_STAY,
    Bound,
    Context,
    LeastBudget,
    OptionError,
    Options,
    Orders,
    PipelineInstance,
    Problem,
    Proposal,
    Stage,
    Steps,
    Termination,
    degrees_of,
)
from remat_algorithms.joint.pipe_plan.bound import forced_bound, limits_of, stated, whole_bound, work_bound
from remat_algorithms.joint.pipe_plan.encoding import Outline
from remat_algorithms.joint.pipe_plan.needless import without_needless
from remat_algorithms.joint.pipe_plan.other_planners import block_cuts, planners_of
from remat_algorithms.joint.pipe_plan.recompute_and_offload import search_both
from remat_algorithms.joint.pipe_plan.recompute_options import StageCosts
from remat_algorithms.joint.pipe_plan.search import Entry, Walks
from remat_algorithms.joint.pipe_plan.smallest_memory import cut_by_bytes, grouped_orders, small_orders
from remat_algorithms.parallel.pipeline.linked_devices import on_linked_devices
from remat_algorithms.parallel.pipeline.model import Lists, one_by_one
from remat_algorithms.parallel.pipeline.named_schedules import named_orders
from remat_algorithms.parallel.pipeline.offload.incumbent import BestSteps
from remat_algorithms.parallel.pipeline.offload.search import Start
from remat_algorithms.parallel.pipeline.order_search import (
    BestOrders,
    SearchOptions,
    has_no_host,
    report_named,
    searched,
)
from remat_algorithms.parallel.pipeline.partition import balanced_cuts
from remat_algorithms.parallel.pipeline.stages import Staging, needs_flush, staging

MOVES = 30_000
"""Default maximum number of moves."""

WORK = 4_000_000_000
"""Maximum product of operations, classes and moves; larger pipelines get fewer moves."""

SCREENING, CONTINUING = (0.1, 0.2), 0.5
"""Shares of the moves for all outlines together, for the better half, and for the two that continue."""

TIGHTENED = 5
"""Maximum number of rounds that give an outline less memory."""

PLACED = 40_000
"""Maximum number of operations of stages for which all other rules and planners run."""

CONTINUED = 2
"""Number of outlines whose best schedule is placed first, and that have the rest of the moves."""

FIRST = 4
"""Maximum number of first schedules of an outline that are placed, where the best one does not fit."""

ALL_CUTS = 24
"""Maximum number of cuts for one stage per device that are all tried."""

HOSTED = 3_000
"""Maximum number of moves of an outline's search with offloading, in units of `MORE` schedules."""

SMALL = 1_000_000
"""Maximum product of operations, classes and moves for which more than two outlines are searched with offloading."""

MOST_HOSTED = 8
"""Maximum number of these outlines."""

SHORT = 3
"""Speed-up over one micro-batch at a time from which memory is not so short that groups of them are tried."""

UNEVEN = 12
"""Maximum number of cuts of other planners that the search continues from."""


class PlanOptions(Options):
    """Options of `pipe-plan`."""

    recompute: Literal["none", "full", "any"] = Field(
        default="any", description="which layers may be recomputed: none, whole stages (full), or any subset (any)"
    )
    placement: Literal["any", "chain", "v", "interleaved", "w", "bidirectional"] = Field(
        default="any",
        description="stages per device: one (chain), two in a V (v), several round-robin (interleaved), four in two Vs "
        "(w), or two copies of the layers in opposite directions (bidirectional); any: try all",
    )
    chunks: int = Field(default=2, ge=2, le=64, description="number of stages per device if they are interleaved")
    moves: int | None = Field(
        default=None, ge=0, le=100_000_000, description="maximum number of schedules to construct"
    )
    effort: int = Field(default=1, ge=1, le=10_000, description="factor by which the default of `moves` is multiplied")
    zoo: bool = Field(default=True, description="also run the other planners")


def solve(problem: Problem, options: PlanOptions, context: Context) -> Proposal:
    """Plan a step that ends with an update of the parameters.

    Raises
    ------
    remat.OptionError
        If parameters change while micro-batches are in progress.

    Notes
    -----
    One move is O(operations x stages). Transient values, contention on links and the end of a step are considered when
    a plan is placed.
    """
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    needs_flush(instance)
    too_large = _too_large(problem, instance)
    if too_large is not None:
        return too_large

    def planned(problem: Problem, context: Context) -> Proposal:
        known = context.known_orders
        report_named(problem, context)
        assert isinstance(problem.instance, PipelineInstance)
        return _Planning(problem, problem.instance, options, context, known).run()

    return on_linked_devices(problem, context, planned)


def _too_large(problem: Problem, instance: PipelineInstance) -> Proposal | None:
    """Return the proposal if the inputs and outputs of some layer fit on no device, in any order."""
    if instance.is_shareable:
        return None
    graph, machine = problem.graph, problem.machine
    rows = [np.add.reduceat(np.append(graph.size[of.items], 0), of.start[:-1]) for of in (graph.reads, graph.writes)]
    for row, of in zip(rows, (graph.reads, graph.writes), strict=True):
        row[of.counts == 0] = 0
    needs = np.where(problem.needed.forced, rows[0] + rows[1] + graph.workspace, 0)
    room = np.zeros(len(needs), dtype=np.int64)
    for processor in machine.processors:
        memory = machine.memories[processor.memory]
        if memory.capacity is None:
            return None
        able = True if graph.times is None else graph.times[graph.types.index(processor.type)] >= 0
        room = np.maximum(room, np.where(able, memory.capacity, 0))
    short = np.flatnonzero(needs > room)
    if not len(short):
        return None
    task = int(short[np.argmax(needs[short])])
    return Proposal(
        infeasible_within=ALL_SCHEDULES,
        least=LeastBudget(int(needs[task]), task, False),
        notes=(f"{graph.described(task)} alone takes more than any device that can run it has",),
    )


@dataclass
class _Line:
    """An outline, its local search, the schedules to continue from, the best one, and the named orders at its start."""

    outline: Outline
    walks: Walks
    entries: list[Entry]
    entry: Entry
    starts: tuple[Lists, ...] = ()


_Key: TypeAlias = tuple[tuple[tuple[int, ...], int], ...]


def _key(stages: Iterable[Stage]) -> _Key:
    """Return layers and device of each stage."""
    return tuple((stage.layers, stage.device) for stage in stages)


class _Planning:
    def __init__(
        self,
        problem: Problem,
        instance: PipelineInstance,
        options: PlanOptions,
        context: Context,
        known: tuple[Orders, ...],
    ) -> None:
        self.problem, self.instance, self.options, self.context = problem, instance, options, context
        self.best = BestOrders(problem, context)
        ranks = instance.sharding
        each = ranks is not None and (ranks.gathers_each or ranks.shares_gradients)
        recompute = "none" if each else options.recompute
        self.costs = StageCosts(instance, instance.each_layer(), instance.device_types, recompute)
        self.bounds: list[Bound] = []
        self.lines: list[_Line] = []
        self.hosted: BestSteps | None = None  # with offloading to a host
        self.known = known

    def run(self) -> Proposal:
        self._bound()
        listed = list(self._outlines())
        self._fit([outline for outline, _ in listed])
        slow = self.best.makespan
        for outline, starts in listed:
            if self._stopped:
                break
            self._begin(outline, starts)
        self.lines.sort(key=lambda line: line.entry.figure)
        fits = False
        for number, line in enumerate(self.lines):
            if self._stopped or (fits and number >= CONTINUED):
                break
            excess = self._offer(line)
            fits = not any(excess) or self._fit_line(line, excess) or fits
        if slow is not None and self.best.makespan is not None and SHORT * self.best.makespan > slow:
            self._fit_groups([outline for outline, _ in listed])
        if self.options.zoo:
            self._ask_zoo()
        for orders in self.known:
            self._take_up(orders)
        self._search()
        if self.best.orders is not None and self.best.makespan is not None:
            found = without_needless(self.problem, self.best.orders, self.best.makespan, lambda: self._stopped)
            self.best.orders, self.best.makespan = found
        steps = self._search_hosted()
        return Proposal(
            steps=steps,
            orders=self.best.answer if steps is None else None,
            makespan=self.best.makespan if steps is None or self.hosted is None else self.hosted.makespan,
            bounds=tuple(self.bounds),
            optimal_within=self._met_scope() if steps is None and self.best.orders is not None else None,
            least=self.best.least if steps is None and self.best.orders is None else None,
            termination=self.context.termination if self.context.stopped else Termination.COMPLETED,
        )

    @property
    def _stopped(self) -> bool:
        return self.context.stopped and self.best.orders is not None

    def _met_scope(self) -> str | None:
        """Return the class of the orders if their makespan equals its bound, so that no schedule of it is faster."""
        best = self.best.makespan
        met = (
            one.scope for one in self.bounds if one.scope != ALL_SCHEDULES and best is not None and best <= one.value
        )
        return next(met, None)

    def _bound(self) -> None:
        limits = limits_of(self.problem)
        if limits is None:
            return
        forced, price = forced_bound(limits)
        source = "work, and memory x time with what must be recomputed" if price else "work"
        value = stated(self.problem, forced)
        self.bounds.append(Bound(value, ALL_SCHEDULES, source))
        if limits.waits:
            shared, counted = work_bound(limits), whole_bound(limits)
            source = "whole layers, counted, and waits" if counted > shared else "work, and what devices wait for"
            scope = PARAMETERS_STAY if limits.stored else LAYERS_WHOLE
            self.bounds.append(Bound(stated(self.problem, max(shared, counted)), scope, source))
        self.context.report(bound=value, scope=ALL_SCHEDULES)

    # --- outlines -----------------------------------------------------------------------------------------------------

    def _outlines(self) -> Iterator[tuple[Outline, list[Lists]]]:
        """Yield evenly cut stages on places, with their named orders."""
        every = ("v", "chain", "interleaved", "w", *(("bidirectional",) if self.instance.copies > 1 else ()))
        shapes = every if self.options.placement == "any" else (self.options.placement,)
        if self.instance.has_skips or self.instance.cut:
            return
        found = False
        refused: OptionError | None = None
        for shape in shapes:
            try:
                stages, starts, chains = self._staging(shape)
            except OptionError as error:
                refused = refused or error
                continue
            found = True
            yield Outline.of(self.problem, self.costs, stages, shape, chains), list(starts)
        if not found and self.options.placement != "any" and refused is not None:
            raise refused
        if self.options.placement == "any":
            yield from self._every_cut()

    def _every_cut(self) -> Iterator[tuple[Outline, list[Lists]]]:
        """Yield all cuts for one stage per device, if there are few."""
        count, depth = len(self.problem.machine.processors), self.instance.length
        if count > depth or comb(depth - 1, count - 1) > ALL_CUTS:
            return
        even = staging(self.problem, "chain")
        for ends in combinations(range(1, depth), count - 1):
            cuts = (0, *ends, depth)
            stages = tuple(Stage(tuple(range(cuts[k], cuts[k + 1])), k) for k in range(count))
            if stages != even.stages and self._runs(stages):
                yield Outline.of(self.problem, self.costs, stages, "chain"), list(even.starts)

    def _runs(self, stages: tuple[Stage, ...]) -> bool:
        """Whether each device can run its layers."""
        layers, types = self.instance.each_layer(), self.instance.device_types
        return all(layers[layer].work_on(types[stage.device]) is not None for stage in stages for layer in stage.layers)

    def _staging(self, shape: str) -> tuple[tuple[Stage, ...], Sequence[Lists], tuple[tuple[int, int], ...]]:
        if shape != "w":
            found: Staging = staging(self.problem, shape, self.options.chunks)
            return found.stages, found.starts, found.model.chains
        row = list(range(len(self.problem.machine.processors)))
        place = (row + row[::-1]) * 2
        cuts = balanced_cuts(self.instance, [[device] for device in place])
        pairs = zip(cuts[:-1], cuts[1:], place, strict=True)
        return tuple(Stage(tuple(range(first, end)), device) for first, end, device in pairs), (), ()

    def _begin(self, outline: Outline, starts: list[Lists]) -> None:
        """Build the first schedules of an outline."""
        if not outline.feasible:
            return
        walks = Walks(outline, self.context.seed, lambda: self._stopped)
        entries = walks.begin([*starts, one_by_one(outline.model)])
        if entries:
            line = _Line(outline, walks, entries, entries[0], tuple(starts))
            self.lines.append(line)
            if self.best.orders is None:
                self._offer(line)

    def _fit(self, outlines: Sequence[Outline]) -> None:
        """Place orders with little memory until one fits; they are the same at every budget."""
        outlines, stages = list(outlines), None
        if self.options.placement in ("any", "chain") and not (self.instance.has_skips or self.instance.cut):
            stages = cut_by_bytes(self.instance)
        if stages is not None and _key(stages) not in {_key(one.stages) for one in outlines}:
            outlines.append(Outline.of(self.problem, self.costs, stages, "chain"))
        for number, orders in enumerate(small_orders(outlines)):
            # Those that need least are placed in any case: they name the budget to ask for.
            if self.best.orders is not None or (self.context.stopped and number >= len(outlines)):
                break
            self.best.weigh(orders)
        self.best.hanging = None

    def _fit_groups(self, outlines: Sequence[Outline]) -> None:
        """Place groups of micro-batches, larger and larger ones, until none of a size fits."""
        before = self.best.orders
        for size in range(2, min(self.instance.micro_batches, 2 * len(self.problem.machine.processors)) + 1):
            fits = False
            for orders in grouped_orders(outlines, size):
                if self._stopped:
                    return
                fits = not any(self.best.weigh(orders)) or fits
            if not fits:
                break
        found = self.best.orders
        if found is not None and found is not before:
            lines = {_key(line.outline.stages): line for line in self.lines}
            self._go_on(lines.get(_key(found.stages)), found)

    def _fit_line(self, line: _Line, excess: list[int]) -> bool:
        """Give an outline less memory until one of its first schedules fits; return whether one does.

        The excess of the best schedule is known.
        """
        outline, entries, known = line.outline, line.entries[:FIRST], [excess]
        for _ in range(TIGHTENED):
            if self.context.stopped or not entries:
                return False
            known += [self._weigh(outline, entry) for entry in entries[len(known) :]]
            least = min(known, key=sum)
            outline = outline.tightened(least)
            if not any(least):
                return True
            if not outline.feasible:
                return False
            walks = Walks(outline, self.context.seed, lambda: self._stopped)
            entries, known = walks.begin([*line.starts, one_by_one(outline.model)])[:FIRST], []
        return False

    def _offer(self, line: _Line) -> list[int]:
        """Place and compare a line's best schedule."""
        return self._weigh(line.outline, line.entry)

    def _weigh(self, outline: Outline, entry: Entry) -> list[int]:
        return self.best.weigh(outline.orders(entry.lists, entry.level, entry.advance))

    # --- the zoo ------------------------------------------------------------------------------------------------------

    def _ask_zoo(self) -> None:
        """Compare the named orders and the answers of planners; add their cuts."""
        if self._too_many:
            return
        for orders in named_orders(self.problem):
            if self._stopped:
                return
            self.best.weigh(orders)
        cut = {_key(stages): stages for stages in block_cuts(self.problem, self.context)}
        known = {_key(line.outline.stages): line for line in self.lines}
        for ask in planners_of(self.problem, self.context):
            if self._stopped:
                return
            with suppress(OptionError):
                proposal = ask()
                if proposal.orders is not None:
                    self._note(proposal.orders, cut, known)
        if has_no_host(self.problem):  # else later, since that takes longer
            self._ask_search(cut, known)
        for key, stages in list(cut.items())[:UNEVEN]:
            if key not in known and self._in_a_row(stages):
                self._begin(Outline.of(self.problem, self.costs, stages, "planned"), [])

    @property
    def _too_many(self) -> bool:
        """Whether there are too many operations to place the plans of others."""
        return self.instance.length * self.instance.micro_batches > PLACED and self.best.orders is not None

    def _note(self, orders: Orders, cut: dict[_Key, tuple[Stage, ...]], known: Mapping[_Key, _Line]) -> None:
        """Compare the answer of a planner, and remember its cuts."""
        self.best.weigh(orders)
        key = _key(orders.stages)
        cut.setdefault(key, orders.stages)
        self._go_on(known.get(key), orders)

    def _ask_search(self, cut: dict[_Key, tuple[Stage, ...]], known: Mapping[_Key, _Line]) -> None:
        """Run `pipe-search`, which also offloads to a host."""
        if self._stopped:
            return
        most = self.options.effort * SearchOptions().moves
        moves = most if self.options.moves is None else max(1, min(self.options.moves, most))
        with suppress(OptionError):
            options, inner = SearchOptions(moves=moves), self.context.aside()
            found, self.hosted = searched(self.problem, options, inner)
            if found.answer is not None:
                self._note(found.answer, cut, known)

    def _go_on(self, line: _Line | None, orders: Orders) -> None:
        """Add orders of a line's stages to the schedules that it continues from."""
        if line is not None and not orders.paired and line.outline.splits_like(orders):
            line.entries = _entries(line.outline, line.walks, orders, line.entries)
            line.entry = line.entries[0]

    def _take_up(self, orders: Orders) -> None:
        """Search first from known orders, which may not fit; all else happens as without them."""
        self.best.weigh(orders)
        if self._stopped:
            return
        line = self._by_key.get(_key(orders.stages))
        if line is not None:
            outline = line.outline
        elif self._in_a_row(orders.stages):
            stages = tuple(replace(stage, recompute=()) for stage in orders.stages)
            outline = Outline.of(self.problem, self.costs, stages, "known")
        else:
            return
        if orders.paired or not outline.feasible or not outline.splits_like(orders):
            return
        walks = Walks(outline, self.context.seed, lambda: self._stopped)
        found = _entries(outline, walks, orders)
        if found:
            own = _Line(outline, walks, found, found[0])
            self._offer(own)
            most = self._moves(own)
            self._continue(own, int(SCREENING[0] * most / max(1, len(self.lines))), int(CONTINUING * most / CONTINUED))

    def _continue(self, line: _Line, moves: int, most: int) -> None:
        """Improve a line with more and more moves, as long as each search is a gain."""
        while 0 < moves <= most and not self._stopped:
            before = line.entry.figure
            self._improve(line, line.entries, moves)
            line.entries = [line.entry, *line.entries]
            if line.entry.figure >= before:
                return
            moves *= 2

    @property
    def _by_key(self) -> dict[_Key, _Line]:
        """The lines by their stages."""
        return {_key(line.outline.stages): line for line in self.lines}

    def _in_a_row(self, stages: tuple[Stage, ...]) -> bool:
        """Whether stages contain all layers once, in order."""
        if self.instance.has_skips or self.instance.cut or self.options.placement != "any":
            return False
        listed = [layer for stage in stages for layer in stage.layers]
        return listed == list(range(self.instance.length)) and not degrees_of(
            self.instance, self.problem.machine, stages
        )

    # --- the host -----------------------------------------------------------------------------------------------------

    def _search_hosted(self) -> Steps | None:
        """Return the best steps with offloading to a host, if these are faster than all orders."""
        if has_no_host(self.problem):
            return None
        if self.options.zoo and not self._too_many:
            self._ask_search({}, {_key(line.outline.stages): line for line in self.lines})
        best = BestSteps(self.problem, self.context, self.best.makespan)
        known: tuple[tuple[Stage, ...], Start | None] | None = None
        alone = self.hosted
        if alone is not None and alone.staged is not None and alone.makespan is not None:
            known = alone.staged.stages, alone.start
            if best.makespan is None or alone.makespan < best.makespan:
                best.steps, best.makespan = alone.steps, alone.makespan
        outlines = {_key(line.outline.stages): line for line in sorted(self.lines, key=lambda one: one.entry.figure)}
        ranked = [*outlines.values()]
        each = max((line.walks.size * self._moves(line) for line in ranked), default=1)
        chosen = ranked[: min(MOST_HOSTED, max(2, SMALL // max(1, each)))]
        if known is not None and (line := outlines.get(_key(known[0]))) is not None and line not in chosen:
            chosen.append(line)
        for line in chosen:
            if self._stopped:
                break
            outline = line.outline
            start = known[1] if known is not None and _key(known[0]) == _key(outline.stages) else None
            search_both(
                best,
                replace(outline, unseen=(0,) * len(outline.unseen)),
                entries=[line.entry, *line.entries[:3]],
                starts=line.starts,
                known=start,
                moves=min(self.options.effort * HOSTED, self._moves(line)),
                stop=lambda: self._stopped or (self.context.stopped and best.steps is not None),
            )
        self.hosted = best
        return best.steps

    # --- search -------------------------------------------------------------------------------------------------------

    def _search(self) -> None:
        lines = sorted(self.lines, key=lambda line: line.entry.figure)
        if not lines:
            return
        most = self._moves(lines[0])
        for share in SCREENING:
            for line in lines:
                if self._stopped or not most:
                    return
                outline = line.outline
                self._improve(line, line.entries, int(share * most / len(lines)))
                line.entries = [line.entry, *(line.entries if line.outline is outline else ())]
            lines.sort(key=lambda line: line.entry.figure)
            lines = lines[: max(CONTINUED, -(-len(lines) // 2))]
        for line in lines[:CONTINUED]:
            if not self._stopped:
                self._improve(line, [line.entry], int(CONTINUING * most / len(lines[:CONTINUED])))

    def _moves(self, line: _Line) -> int:
        if self.options.moves is not None:
            return self.options.moves
        return self.options.effort * min(MOVES, max(500, WORK // line.walks.size))

    def _improve(self, line: _Line, entries: list[Entry], moves: int) -> None:
        """Search, and give an outline less memory while its best schedule does not fit."""
        for turn in range(TIGHTENED):
            line.entry = line.walks.improve(entries, max(1, moves // (1 + (turn > 0))))
            excess = self._offer(line)
            if not any(excess) or self.context.stopped:
                return
            outline = line.outline.tightened(excess)
            if not outline.feasible:
                return
            walks = Walks(outline, self.context.seed + turn + 1, lambda: self._stopped)
            again = walks.begin([line.entry.lists])
            if not again:
                return
            line.outline, line.walks, line.entry, entries = outline, walks, again[0], again


def _entries(outline: Outline, walks: Walks, orders: Orders, more: Sequence[Entry] = ()) -> list[Entry]:
    """Return schedules of orders of an outline's stages, with their own recomputation and others, and `more`."""
    lists, level = outline.lists(orders), outline.levels_of(orders)
    own = None if level is None or not level.any() else walks.repeat(lists, level)
    return sorted([*more, *walks.begin([lists]), *([] if own is None else [own])], key=lambda entry: entry.figure)
