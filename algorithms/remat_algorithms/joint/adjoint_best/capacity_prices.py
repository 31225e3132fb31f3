"""A lower bound for loops of unequal steps on storage levels, from prices for the bytes of each memory.

Lagrangian relaxation. During the backward of step t, x_t and the adjoints occupy the working memory. Let C_a(t) be the
bytes of memory a that are left for other states then. Instead of these limits, each byte of a state in memory a costs
p_a q(t) during that backward. For any prices p, q >= 0, the minimum of time and cost, minus the sum of p_a q(t) C_a(t),
is a lower bound. `best_of_prices` raises the prices where the cheapest schedule exceeds a limit, and lowers others.

Consider the graph of the nodes "x_i is live before the backward of step t" and "x_i is in memory a before the backward
of step t". Its arcs are forward steps, writes, reads, and holding a state during a backward. A schedule contains paths
from x_0 at the beginning to each x_t that is live before its backward. So it costs at least as much as the cheapest
tree of such paths. Let L(i, j, k) be the minimum cost of the backwards k .. j if x_i is live before the backward k. Let
F_a and P_a be the same if x_i is in memory a, in a copy that has not been read yet, or has been. With the price
h_a(i, q, k) of x_i in a during the backwards k .. q (send-and-split method, Erickson, Monma and Veinott 1987):

    L(k, k, k) = 0
    L(i, j, k) = min(f_i + L(i+1, j, k),                                                    i < j
                     min over a and j < q <= k of w_a(i) + L(i, q, k) + h_a(i, q, k) + F_a(i, j, q-1))
    S_a(i, j, k) = min over j < q <= k of L(i, q, k) + h_a(i, q, k) + P_a(i, j, q-1)
    F_a(i, j, k) = r_a(i) + min(L(i, j, k), S_a(i, j, k))
    P_a(i, j, k) = min(r_a(i) + L(i, j, k), min(r_a(i), f_{i-1}) + S_a(i, j, k))

x_i may serve a range that begins after it, so schedules need not be persistent. Three arguments show that no tree is
cheaper:

- *Ranges.* A path of a cheapest tree may advance to x_i before the backward of step t although a copy of x_i stays in a
  for later. If that copy has not been read before, it is written at this moment instead, for the same time. Otherwise
  it has a read before and one after. Then the path continues from a further read of the copy, in place of the forward
  step to x_i. For a read between the first and the last of its copy, P_a charges at most that step. Of two
  copies of a state, the one with the quicker reads serves all backwards while both exist. So paths do not cross, and
  each node serves a range of backwards.
- *Reads for later backwards.* Suppose that a state is read only to write others for later backwards. The price of a
  state is in proportion to its size, with the same factor q(t) in all memories. So what is held after the read costs
  either at least as much as what is held before, at all times, or less at all times. In the first case the read takes
  place at the first backward that uses one of the others. In the second case the others are written when the state was
  last live, without the read.
- *Moves in parts.* Choose a share u between 0 and 1, and for each state its byte at the share u of its size. The
  schedule that has each whole state where this byte is needs no more forward steps. On average over u, it takes no more
  time for transfers and as many bytes of each memory. So the average of its costs is a lower bound, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from remat.plugin import BoolArray, Number, NumberArray, Problem
from remat_algorithms.adjoint.binomial.revolve import problem_backward_time
from remat_algorithms.adjoint.slots import initially_in
from remat_algorithms.adjoint.transfer_times import transfer_times_of
from remat_algorithms.kit.compile.lowering import can_compile
from remat_algorithms.kit.integral_bounds import raised

MOST_CELLS = 2**24
"""Maximum size of the table of one level for all levels: 128 MB."""

MOST_STEPS = round(MOST_CELLS ** (1 / 3))
"""Maximum number of steps, for one level."""

MOST_WORK = 6 * 10**9
"""Maximum number of sums of table entries over all rounds: some seconds."""

MOST_ROUNDS, LEAST_ROUNDS, INTERPRETED_STEPS = 60, 12, 6
"""Rounds of prices; maximum number of steps where kernels are interpreted."""

SAFE = 1e-9
"""Share by which rounded sums are lowered; their relative error is below 1e-11."""


def _above(sizes: NumberArray) -> NumberArray:
    """Return Python integers as float64, never below them."""
    rounded = sizes.astype(float)
    short = np.array([int(near) < size for near, size in zip(rounded.tolist(), sizes.tolist(), strict=True)])
    return np.where(short, np.nextafter(rounded, np.inf), rounded)


@dataclass(frozen=True)
class PricedMemories:
    """A loop for which memory has a price.

    Attributes
    ----------
    forward, size : (n,) float64
        The forward time of the last step is not used.
    write, read : (levels, n) float64
        Times on the processor; infinite without a link. The first level is the working memory.
    memory : list of int
        Index of each level's memory in the machine.
    capacity : (levels, n) float64
        Bytes for other states than x_t during the backward of step t; infinite where unlimited.
    """

    forward: NumberArray
    size: NumberArray
    write: NumberArray
    read: NumberArray
    capacity: NumberArray
    memory: list[int]

    @staticmethod
    def of(problem: Problem) -> PricedMemories | None:
        """Read a problem; None if the relaxation does not cover it."""
        chain, machine = problem.chain, problem.machine
        direct = any(link.source and link.target for link in machine.links)
        packed = any(link.packed is not None for link in machine.links)
        n = chain.length + 1
        if chain.saves or not 1 < n <= MOST_STEPS or len(machine.processors) > 1 or direct or packed:
            return None
        # Python's integers: a state beside an adjoint of 2^53 bytes would vanish in a float.
        state, gradient = (sizes[:n].astype(object) for sizes in (chain.activation_size, chain.gradient_size))
        need = np.maximum(state + np.append(gradient[1:], 0), gradient)
        capacity, write, read = [np.full(n, np.inf)], [np.zeros(n)], [np.zeros(n)]
        memories = [0]
        if machine.memories[0].capacity is not None:
            capacity[0] = _above(np.maximum(0, machine.memories[0].capacity - chain.static_memory - need))
        for level in range(1, len(machine.memories)):
            if (level, 0) not in machine.link_index:
                continue
            memories.append(level)
            limit = machine.memories[level].capacity
            capacity.append(np.full(n, np.inf) if limit is None else _above(np.full(n, limit, dtype=object)))
            for ends, times in (((0, level), write), ((level, 0), read)):
                if ends not in machine.link_index:  # only a given state can be there
                    times.append(np.full(n, np.inf))
                    continue
                moved = transfer_times_of(problem, chain.activation_size[:n], *ends)
                times.append(np.zeros(n) if moved is None else moved)
            if initially_in(problem, level):
                write[-1][0] = 0
        forward = np.append(chain.forward_time[: n - 1], 0).astype(float)
        return PricedMemories(
            forward, -_above(-state), np.array(write, float), np.array(read, float), np.array(capacity), memories
        )

    @property
    def bounded(self) -> BoolArray:
        """Whether each level is limited, which it is during all backwards or none."""
        found: BoolArray = np.isfinite(self.capacity[:, 0])
        return found

    @property
    def limits(self) -> NumberArray:
        """The capacities; 0 where unlimited, since such bytes have no price."""
        return np.where(self.bounded[:, None], self.capacity, 0)

    @property
    def work(self) -> int:
        """Sums of table entries for one set of prices."""
        return int(2 * len(self.capacity) * len(self.size) ** 4 // 24)

    @property
    def rounds(self) -> int:
        """Sets of prices to try; 0 if the tables are too large, or no capacity is limited."""
        if self.cells > MOST_CELLS or not self.bounded.any():
            return 0
        rounds = min(MOST_ROUNDS, MOST_WORK // max(1, self.work))
        return rounds if rounds >= LEAST_ROUNDS and (can_compile() or len(self.size) <= INTERPRETED_STEPS) else 0

    @property
    def cells(self) -> int:
        """Entries of the largest table."""
        return int(len(self.capacity) * len(self.size) ** 3)


def capacity_prices(problem: Problem, stopped: Callable[[], bool]) -> Number:
    """Return a bound on the makespan of all schedules; 0 if the relaxation does not cover the problem.

    O(levels n^4 / 12) time for each of at most `MOST_ROUNDS` sets of prices, O(levels n^3) memory.

    Parameters
    ----------
    problem : Problem
    stopped : callable
        Asked before each row of a table.
    """
    loop = PricedMemories.of(problem)
    if loop is None or not loop.rounds or stopped():
        return 0
    best, _, _ = best_of_prices(PriceTable(loop), loop, stopped)
    # The backwards are added as they are: floats of large integers may round up.
    return problem_backward_time(problem) + raised(problem, best * (1 - SAFE) - SAFE) if best > 0 else 0


def best_of_prices(
    table: PriceTable, loop: PricedMemories, stopped: Callable[[], bool]
) -> tuple[float, NumberArray, NumberArray]:
    """Return the best bound on forward and transfer times over some sets of prices, and these prices."""
    n, bounded, capacity = len(loop.size), loop.bounded, loop.limits
    typical = float(loop.forward.mean()) / max(1.0, float(loop.size.mean()))
    rate, profile = np.where(bounded, 0.02 * typical, 0.0), np.ones(n)
    rate[0] = 0.2 * typical if bounded[0] else 0.0
    best = 0.0, np.zeros(len(rate)), np.ones(n)
    for number in range(loop.rounds):
        cost = table.cheapest(rate, profile, stopped)
        if cost is None:
            break
        bound = cost - float((rate[:, None] * capacity * profile).sum())
        if bound > best[0]:
            best = bound, rate, profile
        over = np.where(bounded[:, None], table.used - capacity, 0)
        width = 1 / (1 + 0.15 * number)
        of_level = (over * profile).sum(axis=1) / np.maximum(1, (capacity * profile).sum(axis=1))
        weight = max(1e-9, float((capacity * rate[:, None]).sum(axis=0).mean()))
        of_time = (over * rate[:, None]).sum(axis=0) / weight
        rate = rate * np.exp(np.clip(width * of_level, -0.7, 0.7))
        profile = np.clip(profile * np.exp(np.clip(0.5 * width * of_time, -0.5, 0.5)), 1e-4, 1e4)
    return best


class PriceTable:
    """The tables L, S, F and P of a loop, and the bytes that a cheapest schedule holds."""

    def __init__(self, loop: PricedMemories) -> None:
        from remat_algorithms.joint.adjoint_best.priced_loops_kernel import FIELDS, FILL, TRACE, PricedLoop

        levels, n = loop.capacity.shape
        again = loop.read.copy()
        again[:, 1:] = np.minimum(again[:, 1:], loop.forward[: n - 1])
        self.rate, self.profile, self.used = np.zeros(levels), np.zeros(n + 1), np.zeros((levels, n))
        self.record = PricedLoop(
            forward=loop.forward,
            size=loop.size,
            write=loop.write,
            read=loop.read,
            again=again,
            rate=self.rate,
            profile=self.profile,
            live=np.full((n, n, n), np.inf),
            stay=np.full((levels, n, n, n), np.inf),
            fresh=np.full((levels, n, n), np.inf),
            kept=np.full((levels, n, n), np.inf),
            best=np.zeros((levels, n)),
            used=self.used,
            stack=np.zeros((FIELDS, (levels + 1) * n + 2), dtype=np.int64),
        )
        self.fill, self.trace = FILL.bind(self.record), TRACE.bind(self.record)

    def cheapest(self, rate: NumberArray, profile: NumberArray, stopped: Callable[[], bool]) -> float | None:
        """Return the minimum of time and cost at these prices, and set `used`; None if stopped."""
        self.rate[:] = rate
        np.cumsum(profile, out=self.profile[1:])
        for j in range(len(profile) - 1, -1, -1):
            if stopped():
                return None
            self.fill(j)
        self.trace()
        return float(self.record.live[0, len(profile) - 1, 0])
