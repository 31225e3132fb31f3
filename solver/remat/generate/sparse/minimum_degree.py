"""Approximate minimum degree on a quotient graph."""

from __future__ import annotations

import heapq

from remat.generate.sparse.pattern import Pattern


def minimum_degree(pattern: Pattern) -> list[int]:
    """Return a fill-reducing order.

    The algorithm is that of Amestoy, Davis and Duff 1996. Eliminated columns become elements, whose variables form
    implicit cliques. A new element absorbs the elements that it covers. Variables with the same neighbours are merged
    and eliminated together. Degrees are bounded from above by

        d_i = min( n - k, d_i + |L_p - i|, |A_i - i| + |L_p - i| + sum over e of |L_e - L_p| ).

    Ties go to the lowest index.

    Parameters
    ----------
    pattern : Pattern

    Returns
    -------
    list of int
        ``order[k]`` is the column to eliminate k-th.
    """
    return _Elimination(pattern).run()


class _Elimination:
    """The quotient graph while it is eliminated.

    `variables[i]` and `elements[i]` are the neighbours of variable i; `members[e]` the variables of element e.
    `weight[i]` is the number of columns that variable i represents; 0 if it is merged or eliminated.
    """

    def __init__(self, pattern: Pattern) -> None:
        n = len(pattern)
        self.variables = [set(row) for row in pattern.lists()]
        self.elements: list[set[int]] = [set() for _ in range(n)]
        self.members: dict[int, set[int]] = {}
        self.size: dict[int, int] = {}  # columns in each element
        self.weight = [1] * n
        self.merged: list[list[int]] = [[] for _ in range(n)]
        self.degree = [len(row) for row in self.variables]
        self.heap = [(degree, i) for i, degree in enumerate(self.degree)]
        heapq.heapify(self.heap)
        self.left = n

    def run(self) -> list[int]:
        order: list[int] = []
        while self.heap:
            degree, pivot = heapq.heappop(self.heap)
            if not self.weight[pivot] or degree != self.degree[pivot]:
                continue
            self._eliminate(pivot)
            group = [pivot]
            for variable in group:
                group += self.merged[variable]
            order += group
        return order

    def _eliminate(self, pivot: int) -> None:
        weight = self.weight
        front = {i for i in self.variables[pivot] if weight[i]}
        for element in self.elements[pivot]:
            front |= self.members.pop(element)
        absorbed = self.elements[pivot]
        front = {i for i in front if weight[i]}
        front.discard(pivot)
        self.left -= weight[pivot]
        weight[pivot] = 0
        self.variables[pivot], self.elements[pivot] = set(), set()
        if not front:
            return
        self.members[pivot] = front
        own = self.size[pivot] = sum(weight[i] for i in front)
        outside = self._outside(front, absorbed)
        for i in front:
            adjacent = self.elements[i]
            adjacent -= absorbed
            for element in [e for e in adjacent if not outside[e]]:  # covered by the new element
                adjacent.discard(element)
            self.variables[i] = {j for j in self.variables[i] - front if weight[j]}
            bound = sum(weight[j] for j in self.variables[i]) + sum(outside[e] for e in adjacent)
            adjacent.add(pivot)
            self.degree[i] = min(self.left - weight[i], self.degree[i] + own - weight[i], bound + own - weight[i])
        for element, rest in outside.items():
            if not rest:
                self.members.pop(element, None)
        self._merge(front)
        for i in front:
            if weight[i]:
                heapq.heappush(self.heap, (self.degree[i], i))

    def _outside(self, front: set[int], absorbed: set[int]) -> dict[int, int]:
        """Return, for each element next to the front, its columns that are not in the front."""
        outside: dict[int, int] = {}
        for i in front:
            own = self.weight[i]
            for element in self.elements[i]:
                if element not in absorbed:
                    outside[element] = outside.get(element, self.size[element]) - own
        return outside

    def _merge(self, front: set[int]) -> None:
        """Merge variables of the front that have the same neighbours."""
        seen: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        for i in sorted(front):
            key = (frozenset(self.variables[i]), frozenset(self.elements[i]))
            kept = seen.setdefault(key, i)
            if kept != i:
                self.weight[kept] += self.weight[i]
                self.degree[kept] -= self.weight[i]
                self.weight[i] = 0
                self.merged[kept].append(i)
                self.variables[i], self.elements[i] = set(), set()
        front -= {i for i in front if not self.weight[i]}
