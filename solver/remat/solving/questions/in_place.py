"""Outputs in place on several inputs, which lie one above the other, and several outputs on one input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.graph.taskgraph import IntArray
from remat.verifier.residencies import Residencies


def stacked(held: Residencies, size: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray] | None:
    """Return lifetimes, groups and shifts in which outputs lie on stacks of inputs; None if no stack is possible.

    An output takes the largest inputs that its run frees, until they are as large as itself. If they are, the output
    begins when they end; otherwise they end when it begins. No address counts twice during the run. An
    output without inputs goes above another output within a larger input. The groups are rigid. An input whose own
    group would then overlap with another one in time and address is left out.

    Parameters
    ----------
    held : Residencies
    size : (residencies,) int64
        Their sizes, rounded up to the alignment.
    """
    hosts: dict[int, list[int]] = {}
    for guest, host in held.hosts.tolist():
        hosts.setdefault(guest, []).append(host)
    stacks = _Stacks(held.first.copy(), held.last.copy(), size.tolist(), np.arange(len(held), dtype=np.int64))
    taken: set[int] = set()
    used: dict[int, int] = {}  # the bytes at the low end of an input that outputs take
    is_stacked = False
    for guest in sorted(hosts, key=lambda row: (-stacks.size[row], row)):
        free = sorted((host for host in hosts[guest] if host not in taken), key=lambda row: (-stacks.size[row], row))
        chosen = stacks.place(guest, free)
        if chosen:
            taken.update(chosen)
            is_stacked = is_stacked or len(chosen) > 1
            used[chosen[-1]] = stacks.size[guest] - sum(stacks.size[host] for host in chosen[:-1])
            continue
        for host in hosts[guest]:
            above = used.get(host, stacks.size[host])
            if above + stacks.size[guest] <= stacks.size[host] and stacks.fill(guest, host, above):
                used[host] += stacks.size[guest]
                is_stacked = True
                break
    return (stacks.start, stacks.end, stacks.group, stacks.shift) if is_stacked else None


@dataclass
class _Stacks:
    """Groups of residencies, and the shift of each within its group."""

    start: IntArray
    end: IntArray
    size: list[int]
    group: IntArray

    def __post_init__(self) -> None:
        self.shift = np.zeros(len(self.group), dtype=np.int64)

    def place(self, guest: int, hosts: list[int]) -> list[int]:
        """Put an output on a stack of some inputs; return these inputs."""
        before = self.start.copy(), self.end.copy(), self.group.copy(), self.shift.copy()
        chosen: list[int] = []
        height = 0
        for host in hosts:
            if height >= self.size[guest]:
                break
            if self._joined(guest, host, height):
                chosen.append(host)
                height += self.size[host]
        if not chosen:
            return []
        if height >= self.size[guest]:
            self.end[chosen] = self.start[guest] = max(self.end[chosen])
        else:
            self.end[chosen] = self.start[guest]
        rows = [guest, *chosen]
        if (self.start[rows] < self.end[rows]).all() and self._is_disjoint(self.group[guest]):
            return chosen
        self.start, self.end, self.group, self.shift = before  # one lives during the run only
        return []

    def fill(self, guest: int, host: int, used: int) -> bool:
        """Put an output this far above the low end of an input that is large enough; return whether it is possible."""
        before = self.start.copy(), self.group, self.shift
        if self._joined(host, guest, used):
            self.start[guest] = max(self.start[guest], self.end[host])
            if self.start[guest] < self.end[guest] and self._is_disjoint(self.group[guest]):
                return True
        self.start, self.group, self.shift = before
        return False

    def _joined(self, low: int, high: int, height: int) -> bool:
        """Join the groups, with the second one this far above the first; False, and no change, if others overlap."""
        above, own = self.group == self.group[high], self.group[low]
        if self.group[high] == own:
            return False
        shift, group = self.shift.copy(), self.group.copy()
        shift[above] += shift[low] + height - shift[high]
        group[above] = own
        shift[group == own] -= shift[group == own].min()
        before, self.group, self.shift = (self.group, self.shift), group, shift
        if self._is_disjoint(own, but=low):
            return True
        self.group, self.shift = before
        return False

    def _is_disjoint(self, group: int, but: int = -1) -> bool:
        """Whether no two members of a group overlap in time and address, one of them left out."""
        rows = np.flatnonzero(self.group == group)
        rows = rows[rows != but]
        low, size = self.shift[rows], np.array([self.size[row] for row in rows.tolist()], dtype=np.int64)
        start, end = self.start[rows], self.end[rows]
        meets = (start[:, None] < end) & (start < end[:, None])
        overlaps = (low[:, None] < low + size) & (low < (low + size)[:, None])
        return int((meets & overlaps).sum()) == len(rows)
