"""The block bound: Checkmate's program on a subset of the stages, which grows where its solution requires it.

Points t_1 < ... < t_q are stages; block j holds the stages after t_(j-1) up to t_j. S_v,j: value v is resident during
the first run at t_j. X_k,j: item k is recomputed in block j; X has no meaning for values first computed in that block.
For values computed before the block,

    S_v,j <= S_v,j-1 + X_k,j                                k computes v
    X_k,j <= S_u,j-1 + X_l,j                                u is an input of k, l computes u
    1     <= S_v,j-1 + X_k,j                                v is read by a first run in the block
    sum of M_v S_v,j + bytes of the run itself <= budget.

Each row holds for every schedule whose first runs follow the order, whatever it recomputes and when. Any choice of
points therefore gives a bound. With all stages as points it is Checkmate's program without its memory rows within
stages. `transients` restores those that still hold: during a rerun of k in block j, every value is resident that is
resident at both ends of the block and not recomputed in it. An input that the run at t_j reads in place may be gone
after the run. In the rows of block j+1 another variable then replaces its S_v,j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from remat_algorithms.dag.anytime.bounds.gap_cover_bound import Lives
from remat_algorithms.dag.plans.model import StageModel
from remat_algorithms.kit.programs.program import ProgramBuilder

Pairs = list[tuple[int, int]]
"""Reruns: (stage, item)."""

Row = tuple[list[tuple[int, int]], int]
"""Terms, and a lower bound on their sum."""


@dataclass(frozen=True)
class Facts:
    """Data that the programs of one model share.

    Attributes
    ----------
    model, lives
    reads, writes : list of list of int
        Values of each item.
    users : list of list of int
        Items that read each value.
    useful : list of int
        The last stage at which each value can be useful: for a need, or for a useful rerun.
    """

    model: StageModel
    lives: Lives
    reads: list[list[int]]
    writes: list[list[int]]
    users: list[list[int]]
    useful: list[int]


def facts_of(model: StageModel, lives: Lives) -> Facts:
    """Collect the facts of a model; O(accesses)."""
    tables = model.tables
    items = range(len(model.task))
    reads = [tables.read_value[tables.read_start[k] : tables.read_start[k + 1]] for k in items]
    writes = [tables.write_value[tables.write_start[k] : tables.write_start[k + 1]] for k in items]
    users: list[list[int]] = [[] for _ in tables.size]
    for item in items:
        for value in reads[item]:
            users[value].append(item)
    useful = [needs[-1] if needs else made for needs, made in zip(lives.needs, lives.made, strict=True)]
    for item in reversed(items):
        if tables.repeat[item] and writes[item]:
            latest = max(useful[value] for value in writes[item])
            for value in reads[item]:
                useful[value] = max(useful[value], latest)
    return Facts(model, lives, reads, writes, users, useful)


@dataclass
class Blocks:
    """A program, and its variables by block.

    Attributes
    ----------
    points : list of int
    resident : list of {value: variable}
        S, for each point.
    spared : list of {value: variable}
        For each point: whether a value outlives the run that reads it in place. Only for values that are useful later.
    rerun : list of {item: variable}
        X, for each block; there is one block more than points.
    """

    facts: Facts
    budget: int
    points: list[int]
    program: ProgramBuilder = field(default_factory=ProgramBuilder)
    resident: list[dict[int, int]] = field(default_factory=list)
    spared: list[dict[int, int]] = field(default_factory=list)
    rerun: list[dict[int, int]] = field(default_factory=list)

    @staticmethod
    def build(facts: Facts, budget: int, points: Sequence[int], transients: Sequence[tuple[int, int]]) -> Blocks:
        """Build the program for some points; `transients` lists (stage, item) of reruns that must fit."""
        blocks = Blocks(facts, budget, sorted(points))
        for number in range(len(blocks.points) + 1):
            blocks._block(number)
        rows = {(blocks.block_of(stage), item): stage for stage, item in sorted(transients)}
        for (number, item), stage in rows.items():
            if item in blocks.rerun[number]:
                blocks._transient(stage, item)
        return blocks

    def block_of(self, stage: int) -> int:
        """Return the number of the block that contains a stage."""
        return sum(point < stage for point in self.points)

    def _span(self, number: int) -> tuple[int, int]:
        """Return the stages (after, up to) of a block."""
        after = self.points[number - 1] if number else -1
        return after, self.points[number] if number < len(self.points) else self.facts.model.stages

    def _block(self, number: int) -> None:
        facts, program = self.facts, self.program
        tables, lives = facts.model.tables, facts.lives
        after, until = self._span(number)
        rerun: dict[int, int] = {}
        self.rerun.append(rerun)
        old = [v for v, made in enumerate(lives.made) if made <= after and facts.useful[v] > after]
        known = set(old)
        for item in sorted({tables.maker[value] for value in old} - {-1}):
            rerun[item] = program.add_column(cost=tables.time[item], integer=True)
        for item, variable in rerun.items():
            for value in facts.reads[item]:
                if value in known:
                    self._supplied([(variable, 1)], value, number)
        for value in old:
            if any(after < need <= until for need in lives.needs[value]):
                self._supplied([], value, number)
        if number < len(self.points):
            self._point(number, known)

    def _supplied(self, users: list[tuple[int, int]], value: int, number: int) -> None:
        """Require a value from before a block: it is kept from the last point, or recomputed in the block."""
        tables = self.facts.model.tables
        if tables.pinned[value] or (number == 0 and tables.initial[value]):
            return
        terms = [(variable, -coefficient) for variable, coefficient in users]
        if number and value in self.resident[number - 1]:
            last = self.spared[number - 1].get(value, self.resident[number - 1][value])
            terms.append((last, 1))
        if tables.maker[value] in self.rerun[number]:
            terms.append((self.rerun[number][tables.maker[value]], 1))
        self.program.add_row(terms, lower=0 if users else 1)

    def _point(self, number: int, old: set[int]) -> None:
        """Add the point at the end of a block; `old` are the earlier values that may still be useful."""
        facts, program, stage = self.facts, self.program, self.points[number]
        tables, lives = facts.model.tables, facts.lives
        run = tables.first[stage]
        accessed = {*facts.reads[run], *facts.writes[run]}
        resident: dict[int, int] = {}
        self.resident.append(resident)
        load: list[tuple[int, int]] = []
        for value, made in enumerate(lives.made):
            if made > stage or (facts.useful[value] <= stage and value not in accessed) or tables.pinned[value]:
                continue
            variable = program.add_column(integer=True)
            resident[value] = variable
            if value in accessed:
                program.add_row([(variable, 1)], lower=1)
            else:
                load.append((variable, -tables.size[value]))
            if value in old:
                self._supplied([(variable, 1)], value, number)
        # `lives.memory` is the run's own memory plus the values that are alive in the order.
        own = self._own(stage, accessed)
        program.add_row(load, lower=own - self.budget)
        self.spared.append({})
        if tables.in_place[run]:
            self._overlay(stage, load, own)

    def _overlay(self, stage: int, load: list[tuple[int, int]], own: int) -> None:
        """Count the inputs that a run in place does not overwrite; `own` assumes that it frees all its inputs."""
        facts, program, tables = self.facts, self.program, self.facts.model.tables
        run = tables.first[stage]
        reads = [value for value in facts.reads[run] if not tables.pinned[value]]
        kept = {value: program.add_column(integer=True) for value in reads if facts.useful[value] > stage}
        self.spared[-1] = kept
        spare = sum(tables.size[value] for value in reads) - tables.written[run]
        if kept:
            row = [(variable, -tables.size[value]) for value, variable in kept.items()]
            program.add_row([*load, *row], lower=own - max(0, spare) - self.budget)

    def _own(self, stage: int, accessed: set[int]) -> int:
        """Return the bytes that a first run itself needs, including those that are always resident."""
        tables, lives = self.facts.model.tables, self.facts.lives
        alive = sum(
            tables.size[value]
            for value, made in enumerate(lives.made)
            if made < stage
            and lives.needs[value]
            and lives.needs[value][-1] >= stage
            and value not in accessed
            and not tables.pinned[value]
        )
        return int(lives.memory[stage] - alive)

    def is_alone(self, stage: int) -> bool:
        """Whether a stage alone forms a block, so that the memory within it is known exactly."""
        known = {-1, self.facts.model.stages, *self.points}
        return stage in known and stage - 1 in known

    def _transient(self, stage: int, item: int) -> None:
        """Add the row of a rerun: its own bytes, and those held during it, fit into the budget."""
        number = self.block_of(stage)
        facts, program = self.facts, self.program
        tables = facts.model.tables
        own = {*facts.reads[item], *facts.writes[item]}
        pinned = sum(size for value, size in enumerate(tables.size) if tables.pinned[value] and value not in own)
        reads = sum(tables.size[value] for value in facts.reads[item])
        free = sum(tables.size[value] for value in facts.reads[item] if not tables.pinned[value])
        written = tables.written[item]
        need = pinned + reads + (max(0, written - free) if tables.in_place[item] else written)
        need += tables.workspace[item] + tables.static[0]
        row = [(self.rerun[number][item], -need)]
        hold = self._held_alone if self.is_alone(stage) else self._held
        for value in sorted(v for v, made in enumerate(facts.lives.made) if made <= self._span(number)[0]):
            if value in own or tables.pinned[value]:
                continue
            causes = hold(number, item, value)
            if causes:
                held = program.add_column(integer=True)
                for terms, least in causes:
                    program.add_row([(held, 1), *terms], lower=least)
                row.append((held, -tables.size[value]))
        program.add_row(row, lower=-self.budget)

    def _held(self, number: int, item: int, value: int) -> list[Row]:
        """Return the rows for a value held through a block: resident at both ends, and not recomputed in between."""
        if number == 0 or number == len(self.points):
            return []
        before, then = self.resident[number - 1], self.resident[number]
        if value not in before or value not in then:
            return []
        terms = [(before[value], -1), (then[value], -1)]
        maker = self.facts.model.tables.maker[value]
        if maker in self.rerun[number]:
            terms.append((self.rerun[number][maker], 1))
        return [(terms, -1)]

    def _held_alone(self, number: int, item: int, value: int) -> list[Row]:
        """Return the rows for a value held during a rerun in a block of one stage.

        The value is held if a later rerun or the end of the stage needs it, unless it is recomputed after the item.
        """
        facts, rerun = self.facts, self.rerun[number]
        tables = facts.model.tables
        maker = tables.maker[value]
        again = [(rerun[maker], 1)] if maker in rerun and maker > item else []
        causes: list[Row] = []
        if number < len(self.points):
            if value in self.resident[number]:
                causes.append(([(self.resident[number][value], -1), *again], 0))
        elif tables.stays[value]:
            causes.append((again, 1))
        later = [other for other in facts.users[value] if other > item and other in rerun]
        causes += [([(rerun[other], -1), *again], 0) for other in later]
        return causes

    def reruns(self, values: Sequence[float]) -> Pairs:
        """Return the reruns of a solution with their stages."""
        reruns = [{item: round(values[variable]) for item, variable in block.items()} for block in self.rerun]
        return placed(self.facts, reruns, [self._span(number) for number in range(len(reruns))])

    def hint(self, item: Sequence[int], stage: Sequence[int]) -> list[int]:
        """Return the values of all variables for a plan."""
        facts = self.facts
        tables = facts.model.tables
        values = [0] * len(self.program.cost)
        for at, task in zip(stage, item, strict=True):
            if at >= len(tables.first) or tables.first[at] != task:
                variable = self.rerun[self.block_of(at)].get(task)
                if variable is not None:
                    values[variable] = 1
        place = {
            at: index
            for index, (at, task) in enumerate(zip(stage, item, strict=True))
            if _first(tables.first, at, task)
        }
        last_write: dict[int, int] = {}
        copies: list[tuple[int, int, int]] = []  # value, from, to
        used: dict[int, int] = {}
        for value, initial in enumerate(tables.initial):
            if initial:
                last_write[value] = used[value] = 0
        for index, task in enumerate(item):
            for value in facts.reads[task]:
                used[value] = index
            for value in facts.writes[task]:
                if value in last_write:
                    copies.append((value, last_write[value], used[value]))
                last_write[value] = used[value] = index
        for value, begin in last_write.items():
            end = len(item) if tables.stays[value] or tables.pinned[value] else used[value]
            copies.append((value, begin, end))
        where = [place[point] for point in self.points]
        for value, begin, end in copies:
            for number, at in enumerate(where):
                if begin <= at <= end and value in self.resident[number]:
                    values[self.resident[number][value]] = 1
                if begin <= at < end and value in self.spared[number]:
                    values[self.spared[number][value]] = 1
        return values


def placed(facts: Facts, rerun: Sequence[dict[int, int]], spans: Sequence[tuple[int, int]]) -> Pairs:
    """Assign each rerun of a solution to the first stage of its span that needs it.

    Parameters
    ----------
    facts : Facts
    rerun : list of {item: 0 or 1}
        For each span, whether an item is recomputed.
    spans : list of (stage, stage)
        For each span, the stage before its first one, and its last one.
    """
    pairs: Pairs = []
    for again, (after, until) in zip(rerun, spans, strict=True):
        wanted: dict[int, int] = {}
        for item in sorted(again, reverse=True):
            if not again[item]:
                continue
            needs = (need for value in facts.writes[item] for need in facts.lives.needs[value] if after < need <= until)
            stage = min(min(needs, default=until), wanted.get(item, until))
            pairs.append((stage, item))
            for value in facts.reads[item]:
                maker = facts.model.tables.maker[value]
                wanted[maker] = min(stage, wanted.get(maker, until))
    return sorted(pairs)


def _first(first: Sequence[int], stage: int, task: int) -> bool:
    return stage < len(first) and first[stage] == task
