"""Steps of a plan with host offloading: their order, their drops, and the memory peaks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from remat.plugin import Machine, Number, StepKind, TaskGraph

Row: TypeAlias = tuple[Number, int, int, int, int, int]
"""Start, number, kind and item of a step; the processor of a run, or the memories of a copy."""


@dataclass(frozen=True)
class Listing:
    """Context of the rows.

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
        """Return rows and their ends by start, without copies to and from the host that no task needs.

        A value at the host may be recomputed before it is read: layers that recompute one by one, ahead of the
        backward, produce the inputs of others. Its trip is then useless.
        """
        graph, found = self.graph, list[int]()
        read: set[tuple[int, int]] = set()  # by later rows, before the value is produced there
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
        """Return the memory of a run, or the source memory of a copy."""
        return self.machine.processors[row[4]].memory if row[2] == StepKind.RUN else row[4]

    def drops(self, rows: Sequence[Row], ends: Sequence[Number]) -> list[list[int]]:
        """Return the drops of each row: a value's last use in a memory, before it is produced there again, drops it.

        A copy to or from the host drops the value from its source when it ends.
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
        """Return the peak of each memory; at each instant, releases by steps that end precede allocations."""
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
