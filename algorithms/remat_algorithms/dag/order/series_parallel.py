"""Series-parallel precedence: recognition and bottom-up evaluation.

An order relation is series-parallel if it is a single task, two series-parallel relations in parallel, or one
completely before the other. Valdes, Tarjan and Lawler 1982: its transitive reduction is the line graph of a
two-terminal multigraph. The tasks are the edges of that multigraph, and series and parallel reductions shrink it to one
edge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

Module = TypeVar("Module")


class NotSeriesParallelError(ValueError):
    """The precedence is not series-parallel.

    Attributes
    ----------
    task : int
        A task at which it fails.
    """

    def __init__(self, task: int) -> None:
        super().__init__(f"not series-parallel at task {task}")
        self.task = task


def reduced(predecessors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the transitive reduction of a graph whose tasks are numbered topologically.

    An edge u -> w can be redundant only if u has further successors and w further predecessors. Without such edges
    (trees), the function returns at once. Otherwise O(n edges / 64), and n^2 / 8 bytes.
    """
    out = [0] * len(predecessors)
    for before in predecessors:
        for other in before:
            out[other] += 1
    if not any(len(before) > 1 and any(out[other] > 1 for other in before) for before in predecessors):
        return [list(before) for before in predecessors]
    masks: list[int] = []
    result: list[list[int]] = []
    for before in predecessors:
        indirect = direct = 0
        for other in before:
            indirect |= masks[other]
            direct |= 1 << other
        masks.append(indirect | direct)
        result.append([other for other in before if not indirect >> other & 1])
    return result


def evaluate(
    predecessors: Sequence[Sequence[int]],
    single: Callable[[int], Module],
    series: Callable[[Module, Module], Module],
    parallel: Callable[[Module, Module], Module],
) -> Module:
    """Compose modules along the decomposition of a series-parallel relation.

    Parameters
    ----------
    predecessors : (n,) lists of int
        A transitively reduced graph, n > 0.
    single, series, parallel : callable
        Return the module of a task, or of two modules (which are not used afterwards).

    Returns
    -------
    Module

    Raises
    ------
    NotSeriesParallelError

    Notes
    -----
    O(n + edges) compositions and steps.
    """
    tails, heads, count = _line_graph(predecessors)
    forward: list[dict[int, Module]] = [{} for _ in range(count)]
    backward: list[set[int]] = [set() for _ in range(count)]
    witness = [0] * count

    def join(tail: int, head: int, module: Module) -> None:
        beside = forward[tail].pop(head, None)
        forward[tail][head] = module if beside is None else parallel(beside, module)
        backward[head].add(tail)

    for task, (tail, head) in enumerate(zip(tails, heads, strict=True)):
        witness[tail] = witness[head] = task
        join(tail, head, single(task))
    waiting = deque(range(2, count))
    while waiting:
        node = waiting.popleft()
        if len(forward[node]) != 1 or len(backward[node]) != 1:
            continue
        (tail,) = backward[node]
        ((head, after),) = forward[node].items()
        before = forward[tail].pop(node)
        forward[node].clear()
        backward[node].clear()
        backward[head].discard(node)
        join(tail, head, series(before, after))
        waiting.extend(other for other in (tail, head) if other > 1)
    if len(forward[0]) != 1 or 1 not in forward[0]:
        stuck = next(node for node in range(2, count) if forward[node])
        raise NotSeriesParallelError(witness[stuck])
    return forward[0][1]


def _line_graph(predecessors: Sequence[Sequence[int]]) -> tuple[list[int], list[int], int]:
    """Return the two nodes of each task's edge, and the number of nodes; 0 is the source, 1 the sink.

    Between tasks that share predecessors and tasks that share successors, there must be all edges or none.
    """
    n = len(predecessors)
    successors: list[list[int]] = [[] for _ in range(n)]
    for task, before in enumerate(predecessors):
        for other in before:
            successors[other].append(task)
    tails, heads, count = [0] * n, [1] * n, 2
    placed = [False] * n
    for task, before in enumerate(predecessors):
        if not before or placed[task]:
            continue
        group = successors[before[0]]
        wanted = sorted(before)
        for other in group:
            if sorted(predecessors[other]) != wanted:
                raise NotSeriesParallelError(other)
            placed[other] = True
            tails[other] = count
        for other in before:
            if successors[other] != group:
                raise NotSeriesParallelError(other)
            heads[other] = count
        count += 1
    return tails, heads, count
