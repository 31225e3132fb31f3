"""Steps of a plan with copies to the host: in which order, what each drops, and the bytes that they take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from remat.plugin import Machine, Number, StepKind, TaskGraph

Row: TypeAlias = tuple[Number, int, int, int, int, int]
"""Start, number, kind and item of a step; the processor of a run, or the memories of a copy."""


@dataclass(frozen=True)
class Listing:
    """What rows are of.

    Attributes
    ----------
    graph : TaskGraph
    machine : Machine
    host : int
        Memory of the host.
    """

    graph: TaskGraph
    machine: Machine
    host: int

    def in_order(self, rows: Sequence[Row], ends: Sequence[Number]) -> tuple[list[Row], list[Number]]:
        """Return rows and their ends by starts, without copies to and from the host of what nobody reads there.

        What waits at the host may be made again before it is read: layers that recompute one by one, all ahead of the
        backward, make what others of them begin with. Then its trip was in vain.
        """
        graph, found = self.graph, list[int]()
        read: set[tuple[int, int]] = set()  # by what follows, before the value is made there
        for place in sorted(range(len(rows)), key=lambda k: rows[k][:2], reverse=True):
            row = rows[place]
            if row[2] == StepKind.RUN:
                home = self._home(row)
                read.difference_update((home, value) for value in graph.writes[row[3]].tolist())
                read.update((home, value) for value in graph.reads[row[3]].tolist())
            elif self.host not in (row[4], row[5]) or (row[5], row[3]) in read:
                read.discard((row[5], row[3]))
                read.add((row[4], row[3]))
            else:
                continue
            found.append(place)
        found.reverse()
        return [rows[k] for k in found], [ends[k] for k in found]

    def _home(self, row: Row) -> int:
        """Return the memory in which a run works, or from which a copy is sent."""
        return self.machine.processors[row[4]].memory if row[2] == StepKind.RUN else row[4]

    def drops(self, rows: Sequence[Row], ends: Sequence[Number]) -> list[list[int]]:
        """Return what each row drops: a value goes with its last use in a memory before it is made there again.

        What crosses to the host, or back, goes where it comes from when it has crossed.
        """
        graph = self.graph
        stays = {place.value for place in graph.placeable}  # parameters
        last: dict[tuple[int, int], tuple[Number, Number, int]] = {}
        found: list[list[int]] = [[] for _ in rows]
        for place, (row, end) in enumerate(zip(rows, ends, strict=True)):
            home = self._home(row)
            made: set[int] = set()
            if row[2] == StepKind.RUN:
                made = set(graph.writes[row[3]].tolist())
                uses = [(home, value) for value in (*graph.reads[row[3]].tolist(), *made)]
            else:
                uses = [(home, row[3]), (row[5], row[3])]
                if self.host in (row[4], row[5]):
                    found[place].append(row[3])
                    last.pop((home, row[3]), None)
                    uses = uses[1:] if row[5] != self.host else []
            for key in uses:
                if key[1] in stays:
                    continue
                if key[1] in made and key in last:
                    found[last.pop(key)[2]].append(key[1])
                last[key] = max(last.get(key, (end, row[0], place)), (end, row[0], place))
        for (_, value), (_, _, place) in last.items():
            found[place].append(value)
        return found

    def peaks(
        self,
        rows: Sequence[Row],
        ends: Sequence[Number],
        drops: Sequence[Sequence[int]],
        initial: Iterable[tuple[int, int]],
    ) -> list[int]:
        """Return the most bytes of each memory: of an instant, what ended before it gives back first."""
        size, graph = self.graph.size.tolist(), self.graph
        held = [0] * len(self.machine.memories)
        for value, memory in initial:
            held[memory] += size[value]
        events: list[tuple[Number, int, int, int]] = []
        for place, (row, end) in enumerate(zip(rows, ends, strict=True)):
            home = self._home(row)
            freed = sum(size[value] for value in drops[place])
            turn = 2 * place
            after = -1 if end > row[0] else turn + 1
            if row[2] == StepKind.RUN:
                work = int(graph.workspace[row[3]])
                taken = sum(size[value] for value in graph.writes[row[3]].tolist())
                events.append((row[0], turn, home, taken + work))
                freed += work
            else:
                events.append((row[0], turn, row[5], size[row[3]]))
            events.append((end, after, home, -freed))
        most = list(held)
        for _, _, home, change in sorted(events):
            held[home] += change
            most[home] = max(most[home], held[home])
        return most
