"""Maximum flow and minimum cut in exact integers."""

from __future__ import annotations

from collections import deque


class FlowNetwork:
    """A directed graph with capacities; vertices are numbers.

    Dinic 1970: breadth-first levels, then blocking flows along them. O(vertices^2 * edges), far less in practice.

    Parameters
    ----------
    vertices : int
    """

    def __init__(self, vertices: int) -> None:
        self.target: list[int] = []
        self.room: list[int] = []
        self.leaving: list[list[int]] = [[] for _ in range(vertices)]

    def add(self, source: int, target: int, capacity: int) -> None:
        """Add an edge; edge number e and its reverse e ^ 1 are a pair."""
        for tail, head, room in ((source, target, capacity), (target, source, 0)):
            self.leaving[tail].append(len(self.target))
            self.target.append(head)
            self.room.append(room)

    def maximum_flow(self, source: int, sink: int) -> int:
        """Return the value of a maximum flow, and leave its residual network in `room`."""
        flow = 0
        while (level := self._levels(source))[sink] >= 0:
            following = [0] * len(self.leaving)
            while pushed := self._push(source, sink, level, following):
                flow += pushed
        return flow

    def source_side(self, source: int) -> list[bool]:
        """Return the vertices that the residual network reaches from the source: the smallest side of a minimum cut."""
        return [depth >= 0 for depth in self._levels(source)]

    def _levels(self, source: int) -> list[int]:
        level = [-1] * len(self.leaving)
        level[source] = 0
        queue = deque([source])
        while queue:
            vertex = queue.popleft()
            for edge in self.leaving[vertex]:
                head = self.target[edge]
                if self.room[edge] and level[head] < 0:
                    level[head] = level[vertex] + 1
                    queue.append(head)
        return level

    def _push(self, source: int, sink: int, level: list[int], following: list[int]) -> int:
        """Push along one path of the level graph; dead ends are left for good."""
        path: list[int] = []
        vertex = source
        while vertex != sink:
            edges = self.leaving[vertex]
            while following[vertex] < len(edges):
                edge = edges[following[vertex]]
                if self.room[edge] and level[self.target[edge]] == level[vertex] + 1:
                    break
                following[vertex] += 1
            else:
                if not path:
                    return 0
                vertex = self.target[path.pop() ^ 1]
                following[vertex] += 1
                continue
            path.append(edge)
            vertex = self.target[edge]
        pushed = min(self.room[edge] for edge in path)
        for edge in path:
            self.room[edge] -= pushed
            self.room[edge ^ 1] += pushed
        return pushed
