"""The program of some moments; the docstring of the package defines it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from remat_algorithms.dag.moments.before_first_run import Order
from remat_algorithms.dag.moments.integer_facts import Facts
from remat_algorithms.dag.moments.secondary_memory import Behind
from remat_algorithms.kit.programs.program import ProgramBuilder

NO, YES = -2, -1
"""Known states, which need no variable."""

Term = tuple[int, int]
"""A coefficient, and the number of a variable, or `NO` or `YES`."""

LONGEST = 16
"""Maximum idle time in a program, as a multiple of the time of all tasks; bounds never exceed it."""


@dataclass
class MomentProgram:
    """A program, and its variables by moment, counted from 0; stretch j ends at the next moment or at the end.

    Attributes
    ----------
    facts, order, behind
    budget : int
    moments : list of int
        Tasks that must run, each before the next.
    program : ProgramBuilder
        Costs in units of time.
    ran : list of list of int
        R, for each task.
    resident : list of {value: variable or YES}
        S.
    spared : list of {value: variable}
        K: whether a value outlives the moment's run, which reads it in place.
    away : list of {value: {memory: variable}}
        H.
    fetched : list of {value: variable}
        F, for the stretch after each moment, if it differs from H.
    rerun, again : list of {task: variable}
        X, for the stretch after each moment, and Z; equal at the last moment.
    idle : list of int
        W: the variable of the time before the first moment, and in each stretch, without a first run in progress. Empty
        without other memories.
    room : list of int
        The memory row of each moment; -1 if that always holds.
    timeless : int
        Number of rows, from the first one, that do not involve time.
    """

    facts: Facts
    order: Order
    budget: int
    moments: list[int]
    behind: Behind | None = None
    program: ProgramBuilder = field(default_factory=ProgramBuilder)
    ran: list[list[int]] = field(default_factory=list)
    resident: list[dict[int, int]] = field(default_factory=list)
    spared: list[dict[int, int]] = field(default_factory=list)
    away: list[dict[int, dict[int, int]]] = field(default_factory=list)
    fetched: list[dict[int, int]] = field(default_factory=list)
    rerun: list[dict[int, int]] = field(default_factory=list)
    again: list[dict[int, int]] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    room: list[int] = field(default_factory=list)
    timeless: int = 0

    def add(self, stopped: Callable[[], bool]) -> bool:
        """Add the variables and rows of all moments; False if `stopped` returns true, which it checks at each moment.

        O(moments * accesses), and moments^2 * tasks for the sums over X.
        """
        for moment in range(len(self.moments)):
            if stopped():
                return False
            self._variables(moment)
        for moment in range(len(self.moments)):
            if stopped():
                return False
            self._order(moment)
            self._residence(moment)
            self._memory(moment)
            self._stretch(moment)
            if self.is_last(moment):
                self._end()
            else:
                self._future(moment)
        self.timeless = len(self.program.row_lower)
        return True

    def still(self) -> ProgramBuilder:
        """Return the program without the rows that involve time."""
        entries = self.program.row_start[self.timeless]
        return replace(
            self.program,
            row_start=self.program.row_start[: self.timeless + 1],
            column=self.program.column[:entries],
            coefficient=self.program.coefficient[:entries],
            row_lower=self.program.row_lower[: self.timeless],
            row_upper=self.program.row_upper[: self.timeless],
        )

    def is_last(self, moment: int) -> bool:
        """Whether one stretch covers the time after a moment, so that X and Z are equal."""
        return moment + 1 == len(self.moments)

    # --- variables ----------------------------------------------------------------------------------------------------

    @property
    def _whole(self) -> bool:
        """Whether values are moved as a whole; with links to other memories, parts of them may be."""
        return self.behind is None

    def _variables(self, moment: int) -> None:
        facts, program, at = self.facts, self.program, self.moments[moment]
        ran: list[int] = []
        for task, known in enumerate(self.order.before(at)):
            if known is None:
                # An optional task costs its time when it runs; here, up to the last moment.
                cost = facts.time[task] if facts.place[task] < 0 and self.is_last(moment) else 0
                ran.append(program.add_column(cost=cost, integer=True))
            else:
                ran.append(YES if known else NO)
        self.ran.append(ran)
        wanted, tasks = self._wanted(moment)
        seen = set(wanted)
        last = self.is_last(moment)
        resident: dict[int, int] = {}
        away: dict[int, dict[int, int]] = {}
        for value in wanted:
            made, freed = self._made(value, moment), self._is_freed(value, at)
            if facts.pinned[value] or value in facts.reads[at] or (facts.size[value] == 0 and made == YES):
                resident[value] = YES
            elif made != NO or value in facts.begins:
                resident[value] = program.add_column(integer=self._whole)
            places = self._places(value, made)
            needed = freed or not last or resident.get(value) != YES or value in facts.ends
            if places and needed and not facts.pinned[value]:
                away[value] = {memory: program.add_column() for memory in places}
        self.resident.append(resident | dict.fromkeys(facts.reads[at], YES))
        self.away.append(away)
        freed_values = [value for value in facts.reads[at] if value in seen and self._is_freed(value, at)]
        self.spared.append({value: program.add_column(integer=self._whole) for value in freed_values})
        own = [value for value in away if not last or value in facts.ends]
        self.fetched.append({value: program.add_column() for value in own})
        # A task whose first run is after the moment need not rerun before the next one.
        here = [task for task in tasks if last or (ran[task] != NO and facts.repeat[task])]
        rerun = {task: program.add_column(cost=facts.cost[task], integer=True) for task in here}
        self.rerun.append(rerun)
        self.again.append(rerun if last else {task: program.add_column(integer=True) for task in tasks})
        if self.behind is not None:
            for _ in range(2 if moment == 0 else 1):
                self.idle.append(program.add_column(cost=1, upper=self.longest))

    @property
    def longest(self) -> int:
        """Upper bound of columns that represent time."""
        return LONGEST * max(1, sum(self.facts.length))

    def _is_freed(self, value: int, task: int) -> bool:
        """Whether a run of a task may overwrite a value that it reads."""
        facts = self.facts
        return facts.in_place[task] and facts.written[task] > 0 and not facts.pinned[value]

    def _made(self, value: int, moment: int) -> int:
        """Return whether a value was in the processor's memory before a moment: `YES`, `NO`, or 0 if undecided."""
        facts = self.facts
        if facts.here[value]:
            return YES
        states = [self.ran[moment][task] for task in facts.makers[value]]
        return YES if YES in states else 0 if any(state != NO for state in states) else NO

    def _places(self, value: int, made: int) -> list[int]:
        """Return the other memories in which a value may be."""
        if self.behind is None:
            return []
        begins = self.facts.begins.get(value, ())
        cuts = {next(iter(cut.memories)): cut for cut in self.behind.cuts if len(cut.memories) == 1}
        return [
            memory
            for memory in self.behind.memories
            if (memory in begins or (cuts[memory].into is not None and (made != NO or begins)))
            and (cuts[memory].back is not None or value in self.facts.ends)
        ]

    def _wanted(self, moment: int) -> tuple[list[int], list[int]]:
        """Return the values that are useful after a moment if they exist then, and the tasks to run for them.

        These tasks rerun, or, if they are optional, may run for the first time.
        """
        facts, ran, at = self.facts, self.ran[moment], self.moments[moment]
        coming = [state != YES and place >= 0 for state, place in zip(ran, facts.place, strict=True)]
        coming[at] = facts.repeat[at] and not self.is_last(moment)
        todo = [
            value
            for value in facts.values
            if facts.stays[value] or value in facts.ends or any(coming[user] for user in facts.users[value])
        ]
        seen, tasks = set(todo), set[int]()
        for value in todo:
            for task in facts.makers[value]:
                may = facts.repeat[task] and ran[task] != NO
                if task in tasks or not (may or (facts.place[task] < 0 and ran[task] != YES)):
                    continue
                tasks.add(task)
                new = [read for read in facts.reads[task] if read not in seen]
                seen.update(new)
                todo += new
        return sorted(seen), sorted(tasks)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def state(self, task: int, moment: int) -> int:
        """Return R: `YES`, `NO` or a variable; at the end, after the last moment, all required tasks have run.

        R of optional tasks stays that of the last moment: all their runs in the last stretch are X.
        """
        if moment < 0:
            return NO
        if moment == len(self.moments):
            return YES if self.facts.place[task] >= 0 else self.ran[-1][task]
        return self.ran[moment][task]

    def after(self, value: int, moment: int) -> int:
        """Return the variable of a value's residence after a moment's run, or its known state."""
        kept = self.spared[moment].get(value)
        return self.resident[moment].get(value, NO) if kept is None else kept

    def fetch(self, value: int, moment: int) -> list[int]:
        """Return the variables whose sum is the share of a value that is fetched in the stretch after a moment."""
        own = self.fetched[moment].get(value)
        return [own] if own is not None else list(self.away[moment].get(value, {}).values())

    def row(self, terms: Iterable[Term], least: int = 0) -> int:
        """Add a row, unless it always holds; return its number, or -1."""
        row: dict[int, int] = {}
        for coefficient, variable in terms:
            if variable == YES:
                least -= coefficient
            elif variable >= 0:
                row[variable] = row.get(variable, 0) + coefficient
        upper = self.program.upper
        if sum(coefficient * int(upper[column]) for column, coefficient in row.items() if coefficient < 0) < least:
            return self.program.add_row(list(row.items()), lower=least)
        return -1

    def _runs(self, task: int, moment: int) -> list[Term]:
        """Return the terms of n, which is positive if a task runs in the stretch after a moment."""
        return [
            (1, self.state(task, moment + 1)),
            (-1, self.state(task, moment)),
            (1, self.rerun[moment].get(task, NO)),
        ]

    def _supply(self, value: int, moment: int) -> list[Term] | None:
        """Return terms whose sum is positive if a value is present in the stretch after a moment; None if always."""
        here = self.after(value, moment)
        if here == YES:
            return None
        terms = [(1, here), *((1, column) for column in self.fetch(value, moment))]
        for task in self.facts.makers[value]:
            if self.state(task, moment) == NO and self.state(task, moment + 1) == YES:
                return None
            terms += self._runs(task, moment)
        return terms

    def _order(self, moment: int) -> None:
        """Add the rows for tasks whose state at a moment is unknown."""
        facts, ran = self.facts, self.ran[moment]
        if all(state < 0 for state in ran):
            return
        for task, state in enumerate(ran):
            if moment:
                self.row([(1, state), (-1, self.ran[moment - 1][task])])
            if state == NO:
                continue
            for value in facts.reads[task]:
                if not facts.there[value]:
                    self.row([*((1, ran[maker]) for maker in facts.makers[value]), (-1, state)])

    def _residence(self, moment: int) -> None:
        """Add the rows that require a source for values that are resident or offloaded at a moment."""
        facts = self.facts
        for value, here in self.resident[moment].items():
            if moment:
                supply = self._supply(value, moment - 1)
                if supply is not None:
                    self.row([*supply, (-1, here)])
            elif not facts.there[value]:
                self.row([*((1, self.ran[0][task]) for task in facts.makers[value]), (-1, here)])
        for value, places in self.away[moment].items():
            if not facts.there[value]:
                made = [(1, self.ran[moment][task]) for task in facts.makers[value]]
                for column in places.values():
                    self.row([*made, (-1, column)])
        for value, column in self.fetched[moment].items():
            self.row([*((1, place) for place in self.away[moment][value].values()), (-1, column)])
        for value, column in self.spared[moment].items():
            self.row([(1, self.resident[moment][value]), (-1, column)])

    def _memory(self, moment: int) -> None:
        facts, at = self.facts, self.moments[moment]
        size = facts.size
        # The outputs of the run count as written during it, not as resident.
        own = set(facts.writes[at]) - set(facts.reads[at])
        here = self.resident[moment].items()
        load = [(-size[value], state) for value, state in here if not facts.pinned[value] and value not in own]
        self.room.append(self.row(load, facts.always + facts.needs(at) - self.budget))
        if self.spared[moment]:
            kept = [(-size[value], column) for value, column in self.spared[moment].items()]
            read = sum(size[value] for value in facts.reads[at] if not facts.pinned[value])
            written = facts.written[at] + facts.workspace[at]
            self.room[-1] = self.row([*load, *kept], facts.always + written - read - self.budget)
        for memory, room in ({} if self.behind is None else self.behind.room).items():
            # Values that the run overwrites may arrive there during it.
            away = [(v, places) for v, places in self.away[moment].items() if v not in self.spared[moment]]
            self.row([(-size[value], places[memory]) for value, places in away if memory in places], -room)

    def _stretch(self, moment: int) -> None:
        """Add the rows for the inputs of the runs in the stretch after a moment."""
        facts, then = self.facts, moment + 1
        for task in facts.tasks:
            runs: list[list[Term]] = []
            rerun = self.rerun[moment].get(task, NO)
            if rerun != NO:
                runs.append([(-1, rerun)])
                self._may_rerun(task, rerun, moment)
            before, after = self.state(task, moment), self.state(task, then)
            if before != after and task != self.moments[moment]:
                runs.append([(-1, after), (1, before)])
            for value in facts.reads[task] if runs else ():
                supply = self._supply(value, moment)
                if supply is not None:
                    for run in runs:
                        self.row([*supply, *run])

    def _may_rerun(self, task: int, rerun: int, moment: int) -> None:
        """Add the rows for the conditions under which a task can rerun in the stretch after a moment."""
        facts = self.facts
        if facts.place[task] >= 0:
            self.row([(1, self.state(task, moment + 1)), (-1, rerun)])
        elif not facts.repeat[task]:
            self.row([(-1, self.state(task, moment)), (-1, rerun)], -1)
        elif not self.is_last(moment):
            self.row([(1, self.state(task, moment + 1)), (-1, rerun)])
        if rerun != self.again[moment][task]:
            self.row([(1, self.again[moment][task]), (-1, rerun)])

    def _end(self) -> None:
        """Add the rows for values that must be present at the end."""
        facts, last = self.facts, len(self.moments) - 1
        for value in facts.values:
            if facts.stays[value]:
                supply = self._supply(value, last)
                if supply is not None:
                    self.row(supply, 1)
            if value in facts.ends:
                here = self.after(value, last)
                runs = [term for task in facts.makers[value] for term in self._runs(task, last)]
                places = self.away[last].get(value, {}).values()
                self.row([(1, here), *((1, column) for column in places), *runs], 1)

    def _future(self, moment: int) -> None:
        """Add the rows for the needs of all later runs together, and those that link their reruns to the stretches."""
        facts = self.facts
        again = self.again[moment]
        for value in facts.values:
            here = self.after(value, moment)
            users = [user for user in facts.users[value] if self._comes(user, moment)]
            reruns = [again[user] for user in facts.users[value] if user in again]
            ends = facts.stays[value] or value in facts.ends
            if here == YES or not (users or reruns or ends):
                continue
            places = self.away[moment].get(value, {}).values()
            terms = [(1, here), *((1, column) for column in places)]
            terms += [(1, again.get(task, NO)) for task in facts.makers[value]]
            makers = [task for task in facts.makers[value] if facts.place[task] >= 0]
            terms += [(-1, self.ran[moment][task]) for task in makers]
            for user in users:
                self.row([*terms, (1, self.ran[moment][user])], 1 - len(makers))
            if ends:
                self.row(terms, 1 - len(makers))
            for rerun in reruns:
                self.row([*terms, (-1, rerun)], -len(makers))
        for task, column in again.items():
            stretches = [(1, rerun[task]) for rerun in self.rerun[moment:] if task in rerun]
            if facts.place[task] < 0:
                stretches += [(1, self.ran[-1][task]), (-1, self.ran[moment][task])]
            self.row([*stretches, (-1, column)])
            if moment and task in self.again[moment - 1]:
                self.row([(1, self.again[moment - 1][task]), (-1, column)])

    def _comes(self, task: int, moment: int) -> bool:
        """Whether a required task may first run after a moment, other than in the moment's run."""
        return self.facts.place[task] >= 0 and self.ran[moment][task] != YES and task != self.moments[moment]
