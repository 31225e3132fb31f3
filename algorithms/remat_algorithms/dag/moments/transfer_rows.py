"""The rows of a program that bound the bytes transferred between memories in each stretch."""

from __future__ import annotations

from remat_algorithms.dag.moments.formulation import NO, YES, MomentProgram, Term
from remat_algorithms.dag.moments.secondary_memory import Behind, Cut, Way

MOST_WINDOWS = 60
"""Maximum number of time windows of a kind in a stretch, for each set of memories."""

Load = list[tuple[int, list[int], int]]
"""Transfers: units of time of a value, columns whose sum is the transferred share, and a period without its transfer.
The period begins with the stretches, or ends with them.
"""


def add_transfers(program: MomentProgram, behind: Behind) -> None:
    """Add the rows of all moments, and those for values that begin or end in other memories."""
    for cut in behind.cuts:
        rows = _Rows(program, cut, whole=cut is behind.cuts[0])
        for moment in range(len(program.moments)):
            rows.sent(moment)
            rows.fetched(moment)
        rows.begun()
        rows.ended()
        rows.in_turns()


class _Rows:
    """The rows of one set of memories; `whole` if it contains all of them.

    `totals` contains, for ranges of stretches: first stretch, last stretch, column of all their transfers, the longest
    transfer that may extend beyond them, and the links.
    """

    def __init__(self, program: MomentProgram, cut: Cut, *, whole: bool) -> None:
        self.program, self.cut, self.facts, self.whole = program, cut, program.facts, whole
        self.totals: list[tuple[int, int, int, int, Way]] = []

    # --- time ---------------------------------------------------------------------------------------------------------

    def _time(self, first: int, last: int, way: Way) -> tuple[int, list[Term]]:
        """Return the time of the stretches from `first` to `last`: its known part, and the terms of the rest.

        -1 is the stretch before the first moment. A synchronous link transfers only while no task runs.
        """
        program, facts = self.program, self.facts
        terms: list[Term] = [(1, program.idle[stretch + 1]) for stretch in range(first, last + 1)]
        known = 0
        if way.synchronous:
            return known, terms
        for task in facts.tasks:
            before, after = program.state(task, first), program.state(task, last + 1)
            if before != after:
                length = facts.length[task] if facts.place[task] >= 0 else facts.time[task]
                terms += [(length, after), (-length, before)]
            if before == YES and facts.unread[task] and facts.place[task] >= 0 and program.order.listed:
                known += facts.length[task]  # it may run later instead
        for stretch in range(max(0, first), last + 1):
            terms += [(facts.cost[task], column) for task, column in program.rerun[stretch].items()]
        return known, terms

    def _within(self, load: Load, first: int, last: int, way: Way, longest: int = 0) -> None:
        """Require that the transfers of some stretches fit into their time, in windows from the shortest to all of it.

        `longest`: units of the longest transfer that may begin before the stretches, or end after them. Each channel
        has one of those; they count in the window of the whole time.
        """
        if not load:
            return
        program = self.program
        known, terms = self._time(first, last, way)
        # Time that may not pass in the stretches at all cannot have passed in them.
        surely = known + sum(coefficient for coefficient, column in terms if column == YES)
        load = sorted(((units, columns, min(mark, surely)) for units, columns, mark in load), key=lambda one: -one[2])
        loose = 0 if way.synchronous else way.channels * longest
        marks = sorted({entry[2] for entry in load}, reverse=True)
        step = -(-len(marks) // MOST_WINDOWS)
        chosen = {*marks[step - 1 :: step], marks[-1]}
        above, crossing, most = NO, list[Term](), 0
        for index, (units, columns, mark) in enumerate(load):
            crossing += [(-units, column) for column in columns]
            most += units * len(columns)
            if mark in chosen and (index + 1 == len(load) or load[index + 1][2] != mark):
                # Each sum has its own column, so that each value appears in one row.
                total = program.program.add_column(upper=most)
                program.row([(1, total), (-1, above), *crossing])
                passed = 0 if way.synchronous else mark
                program.row([(-1, total), *terms], passed - known - (0 if mark else loose))
                above, crossing = total, []
        self.totals.append((first, last, above, loose, way))

    # --- what crosses -------------------------------------------------------------------------------------------------

    def _away(self, value: int, moment: int) -> list[int]:
        """Return the columns of a value's shares in these memories at a moment."""
        if moment < 0:
            return []
        places = self.program.away[moment].get(value, {})
        return [column for memory, column in places.items() if memory in self.cut.memories]

    def _begins_here(self, value: int) -> bool:
        return any(memory in self.cut.memories for memory in self.facts.begins.get(value, ()))

    def _start(self, moment: int) -> int:
        """Return the time of the first runs before a moment of a listed order that cannot be postponed."""
        facts = self.facts
        before = facts.order[: facts.place[self.program.moments[moment]]]
        return sum(facts.length[task] for task in before if not facts.unread[task])

    def sent(self, moment: int) -> None:
        """Require that values in these memories at a moment were transferred there, unless they begin there."""
        way, program = self.cut.into, self.program
        if way is None:
            return
        listed, lead = program.order.listed, program.order.lead
        start = self._start(moment - 1) if listed and moment else 0
        load: Load = []
        longest = 0
        for value in program.away[moment]:
            columns, before = self._away(value, moment), self._away(value, moment - 1)
            # Values that the moment's run overwrites may still be transferred during it.
            if not columns or self._begins_here(value) or value in program.spared[moment]:
                continue
            units = way.time(self.facts.size[value])
            if listed and before:
                new = program.program.add_column()
                program.row([(1, new), *((1, column) for column in before), *((-1, column) for column in columns)])
                load.append((units, [new], 0))
                longest = max(longest, units)
            else:
                load.append((units, columns, max(0, lead[value] - start)))
        self._within(load, moment - 1 if listed else -1, moment - 1, way, longest)

    def fetched(self, moment: int) -> None:
        """Require that values that are fetched in the stretch after a moment arrive before they are needed."""
        way, program = self.cut.back, self.program
        if way is None:
            return
        facts, at, last = self.facts, program.moments[moment], program.is_last(moment)
        tails, rest = program.order.tails(at, program.order.before(at)), 0
        if not last:
            following = facts.place[program.moments[moment + 1]]
            rest = sum(facts.time[task] for task in facts.order[following:])
        load: Load = []
        for value in program.away[moment]:
            apart = value in program.fetched[moment]
            columns = program.fetch(value, moment) if self.whole else [] if apart else self._away(value, moment)
            if columns:
                mark = tails[value] - rest if last or program.order.listed else 0
                load.append((way.time(facts.size[value]), columns, max(0, mark)))
        longest = 0 if last else max((units for units, *_ in load), default=0)
        self._within(load, moment, moment, way, longest)

    def begun(self) -> None:
        """Require that values that begin only in these memories are fetched before they are read."""
        way, program, facts = self.cut.back, self.program, self.facts
        if way is None:
            return
        at = program.moments[0]
        until = facts.place[at]
        passed, tail = 0, dict[int, int]()
        if program.order.listed:
            for place in range(until, -1, -1):
                task = facts.order[place]
                passed += facts.time[task] if place < until else 0
                if not facts.unread[task] or task == at:
                    tail.update(dict.fromkeys(facts.reads[task], passed))
        else:
            read = (task for task in facts.order if program.ran[0][task] == YES)
            tail = {value: 0 for task in (*read, at) for value in facts.reads[task]}
        load: Load = []
        for value, memories in facts.begins.items():
            if facts.here[value] or facts.makers[value] or not self.cut.memories.issuperset(memories):
                continue
            column = YES if value in tail else program.resident[0].get(value, NO)
            if column != NO:
                load.append((way.time(facts.size[value]), [column], tail.get(value, 0)))
        self._within(load, -1, -1, way, max((units for units, columns, _ in load if columns != [YES]), default=0))

    def ended(self) -> None:
        """Require the transfer of values that must end in these memories and are not there at the last moment."""
        way, program, facts = self.cut.into, self.program, self.facts
        if way is None:
            return
        last, listed = len(program.moments) - 1, program.order.listed
        start, lead = self._start(last) if listed else 0, program.order.lead
        after: Load = []
        ever: Load = []
        for value, memories in facts.ends.items():
            if self._begins_here(value) or self.cut.memories.isdisjoint(memories):
                continue
            units, columns = way.time(facts.size[value]), self._away(value, last)
            late = YES
            if columns:
                late = program.program.add_column()
                program.row([(1, late), *((1, column) for column in columns)], 1)
            after.append((units, [late], max(0, lead[value] - start) if listed else 0))
            ever.append((units, [YES], lead[value]))
        self._within(after, last, last, way, max((units for units, _, mark in after if mark == 0), default=0))
        if not listed:
            self._within(ever, -1, last, way)

    def in_turns(self) -> None:
        """If both directions use one channel, require that their transfers in a stretch share its time."""
        into, back = self.cut.into, self.cut.back
        if into is None or back is None or into.channel is None or into.channel != back.channel:
            return
        spans = {(first, last) for first, last, *_ in self.totals}
        for first, last in sorted(spans):
            parts = [(column, loose) for begin, end, column, loose, _ in self.totals if (begin, end) == (first, last)]
            if len(parts) > 1:
                known, terms = self._time(first, last, into)
                slack = max(loose for _, loose in parts)
                self.program.row([*terms, *((-1, column) for column, _ in parts)], -known - slack)
