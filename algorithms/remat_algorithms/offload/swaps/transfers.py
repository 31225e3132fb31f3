"""The transfers of an order: those of its swaps, and the mandatory ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from remat.plugin import Machine, TaskGraph
from remat_algorithms.offload.swaps.program import AT_ONCE, Program, Run, Transfer
from remat_algorithms.offload.swaps.value_copies import BEFORE_ALL, Copy, Gap, Swap, leaves


class Ordered(Protocol):
    """An order of runs with its copies and gaps (`swaps.Order`)."""

    graph: TaskGraph
    machine: Machine
    device: int
    tasks: list[int]
    processors: list[int]
    copies: list[Copy]
    gaps: list[Gap]
    drops: list[list[int]]

    def way(self, source: int, target: int) -> tuple[int, ...]:
        """Return the fewest links from one memory to another."""
        ...


def program_of(order: Ordered, swaps: Iterable[Swap]) -> Program:
    """Return the runs of an order, and the transfers of its swaps and of values that must cross links anyway."""
    chosen = {swap.gap: swap for swap in swaps}
    plan = _Transfers(order, chosen)
    for copy in order.copies:
        if copy.refuge is not None or any(gap in chosen for gap in copy.gaps):
            plan.add(copy)
    runs = [
        Run(task, processor, tuple(row))
        for task, processor, row in zip(order.tasks, order.processors, plan.drops, strict=True)
    ]
    return Program(runs, plan.transfers)


class _Transfers:
    """The transfers, copy by copy, and the values that each run's end frees."""

    def __init__(self, order: Ordered, chosen: Mapping[int, Swap]) -> None:
        self.order, self.chosen = order, chosen
        self.count = len(order.tasks)
        self.transfers: list[Transfer] = []
        self.drops = [list(row) for row in order.drops]

    def add(self, copy: Copy) -> None:
        """Append the transfers of one copy: those out, then its returns in order of its gaps."""
        gaps = [(self.order.gaps[index], self.chosen.get(index)) for index in copy.gaps]
        back = [(gap, swap) for gap, swap in gaps if gap.away or (swap is not None and leaves(copy, gap))]
        swaps = [(gap, swap) for gap, swap in back if swap is not None and not gap.away]
        departures = [gap.after for gap, _ in swaps]
        reached, relays = self._sent(copy, swaps)
        if copy.here and copy.home is None:
            departures = departures[1:]  # the first one frees its source
            if copy.sent and swaps and copy.freed:
                self.drops[copy.last].append(copy.value)
        for position in departures:
            self.drops[position].append(copy.value)  # a value that is elsewhere already is only dropped here
        refuge = copy.refuge if copy.refuge is not None or not swaps else swaps[0][1].route.memory
        kept = {*copy.ends, *relays} | (set(reached) if copy.value in self.order.graph.pinned else set())
        if refuge is not None and back:
            reads = copy.remote.get(refuge)
            last = None if refuge in kept else reads[-1] if reads else AT_ONCE
            self._back(copy, refuge, back, previous=reached[refuge], last_use=last)
            kept.add(refuge)
        for memory in reached:
            if memory not in kept and memory != self.order.device:
                self._drop_elsewhere(copy, memory)

    def _sent(self, copy: Copy, swaps: Sequence[tuple[Gap, Swap]]) -> tuple[dict[int, int], set[int]]:
        """Send a copy to all memories in which it must be, or may wait.

        Returns
        -------
        dict of int to int
            The transfer (-1: none) that brings it into each memory.
        set of int
            Memories from which it was sent on.
        """
        order = self.order
        start = order.device if copy.home is None else copy.home
        reached, relays = {start: -1}, set[int]()
        first = swaps[0] if swaps else None
        leaving = first[0].after if first is not None else copy.last if copy.freed else None
        direct = -1  # the latest transfer that leaves the processor's memory: the last one frees the copy there
        if first is not None and copy.refuge is None:
            swap = first[1]
            gone_by = self.count if swap.gone_by is None else swap.gone_by
            self._hops(copy, swap.route.out, -1, needed=gone_by, last_use=leaving, begin=swap.leave_with)
            reached[swap.route.memory] = len(self.transfers) - 1
        for target in copy.targets:
            links = order.way(start, target)
            ends = [order.machine.links[link].target for link in links]
            known = max((hop for hop, memory in enumerate(ends) if memory in reached), default=-1)
            source = ends[known] if known >= 0 else start
            reads = copy.remote.get(target)
            needed = reads[0] if reads else self.count
            if source != order.device:
                relays.add(source)
                self._hops(copy, links[known + 1 :], reached[source], needed=needed, last_use=None)
            else:
                if direct >= 0:
                    self.transfers[direct] = replace(self.transfers[direct], last_use=None)
                before, direct = direct, len(self.transfers)
                self._hops(copy, links, before, needed=needed, last_use=leaving)
            reached[target] = len(self.transfers) - 1
        return reached, relays

    def _hops(
        self, copy: Copy, links: Sequence[int], previous: int, *, needed: int, last_use: int | None, begin: int = -1
    ) -> None:
        """Append the transfers of a route out, from a memory into which the transfer `previous` has brought a copy."""
        for hop, link in enumerate(links):
            is_last = hop + 1 == len(links)
            self.transfers.append(
                Transfer(
                    value=copy.value,
                    link=link,
                    ready=copy.written,
                    needed=needed if is_last else self.count,
                    last_use=BEFORE_ALL if hop else last_use,
                    previous=len(self.transfers) - 1 if hop else previous,
                    begin=begin,
                )
            )

    def _back(
        self,
        copy: Copy,
        refuge: int,
        back: Sequence[tuple[Gap, Swap | None]],
        *,
        previous: int,
        last_use: int | None,
    ) -> None:
        """Append the returns; the last of them, or the last read there, frees an unneeded waiting copy."""
        order = self.order
        for number, (gap, swap) in enumerate(back):
            chosen = swap is not None and copy.refuge is None
            links = swap.route.back if swap is not None and chosen else order.way(refuge, order.device)
            for hop, link in enumerate(links):
                is_first = hop == 0
                self.transfers.append(
                    Transfer(
                        value=copy.value,
                        link=link,
                        ready=gap.after,
                        needed=gap.before if swap is None or swap.back_by is None else swap.back_by,
                        last_use=(last_use if number + 1 == len(back) else None) if is_first else BEFORE_ALL,
                        previous=(previous if number == 0 else -1) if is_first else len(self.transfers) - 1,
                        begin=-1 if swap is None else swap.return_with,
                        leaves=False,
                    )
                )

    def _drop_elsewhere(self, copy: Copy, memory: int) -> None:
        """Free a copy in another memory with its last read there or, without one, with the run that wrote it."""
        reads = copy.remote.get(memory)
        if reads:
            self.drops[reads[-1]].append(copy.value)
        elif copy.home == memory and copy.written != BEFORE_ALL:
            self.drops[copy.written].append(copy.value)
