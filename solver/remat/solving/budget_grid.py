"""Budget grid: the only budgets at which the set of feasible schedules can change."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remat.plugin.problem import Problem
from remat.plugin.proposal import LeastBudget


@dataclass(frozen=True, slots=True)
class Grid:
    """The budgets offset + k * step.

    A memory holds whole values, workspaces and the static memory. Therefore every peak is the static memory plus a
    multiple of the sizes' greatest common divisor. Two budgets between the same grid budgets admit the same
    schedules.
    """

    offset: int
    step: int

    @staticmethod
    def of(problem: Problem, memory: int) -> Grid:
        """Return the grid of a memory (by index).

        A storage level of an adjoint holds states (and tapes). Other memories without a processor may hold parts of
        values, and therefore any number of bytes.
        """
        graph, machine = problem.graph, problem.machine
        offset = graph.static_bytes(machine, memory)
        works = any(processor.memory == memory for processor in machine.processors)
        if problem.instance.has_states and not works:
            sizes = np.concatenate((problem.chain.activation_size, problem.chain.saved_size))
        elif problem.instance.has_states or len(machine.memories) == 1:
            sizes = np.concatenate((graph.size, graph.workspace))
        else:
            return Grid(offset, 1)
        return Grid(offset, max(1, int(np.gcd.reduce(sizes, initial=0))))

    def above(self, size: int) -> int:
        """Return the smallest grid budget above `size`."""
        return self.offset + ((size - self.offset) // self.step + 1) * self.step

    def below(self, size: int) -> int:
        """Return the largest grid budget below `size`; it may be negative."""
        return self.offset + (-((self.offset - size) // self.step) - 1) * self.step

    def between(self, low: int, high: int) -> int | None:
        """Return a grid budget near the middle between two budgets, or None if there is none between them."""
        first, last = self.above(low), self.below(high)
        if first > last:
            return None
        return first + (last - first) // self.step // 2 * self.step

    def spread(self, low: int, high: int, count: int) -> tuple[int, ...]:
        """Return at most `count` budgets from `high` down to `low`, both included.

        The budgets are in equal ratios, because a saved gigabyte matters more at small budgets. If there are at most
        `count` grid budgets, return all of them.
        """
        if high <= low:
            return (low,)
        inner = self.below(high) - self.above(low)
        if inner < 0:
            chosen = set[int]()
        elif inner // self.step + 1 <= count - 2:
            chosen = set(range(self.above(low), high, self.step))
        else:
            chosen = {self._spread(low, high, k / (count - 1)) for k in range(1, count - 1)}
        return tuple(sorted({low, high, *(size for size in chosen if low < size < high)}, reverse=True))

    def _spread(self, low: int, high: int, share: float) -> int:
        low = low or self.above(0)
        return self.below(math.floor(low * (high / low) ** share) + 1)


def with_whole_values(problem: Problem) -> Problem:
    """Return the problem with capacities for whole values: no algorithm for time loops divides states."""
    rounded: dict[str, int | None] = {}
    for index, memory in enumerate(problem.machine.memories):
        if memory.capacity is not None and problem.instance.has_storage:
            rounded[memory.name] = max(0, Grid.of(problem, index).below(memory.capacity + 1))
    return problem.with_capacities(rounded) if rounded else problem


def is_minimal(problem: Problem, least: LeastBudget | None) -> bool:
    """Whether a budget is sufficient, and the next smaller grid budget is proved insufficient."""
    if least is None or not least.sufficient:
        return False
    bound = problem.least_of(least.memory)
    return bound is not None and Grid.of(problem, least.memory).below(least.size) < bound.size
