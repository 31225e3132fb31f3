"""A bound on the time from a situation to the end of a loop, from prices of memory, for the exact search.

The bound of `capacity_prices` also holds for the rest of a schedule. The states that exist now serve the remaining
backwards in ranges, in the order of their positions. With the cost c_m(j, k) of the backwards k .. j from the state m,
in the memory where it is, and the price of holding it there until then:

    T_0(-1) = 0,    T_m(k) = min(T_{m-1}(k), min over j <= k of T_{m-1}(j-1) + c_m(j, k))

T_m(k) of all states, for the next backward k, minus the prices of the capacities during the remaining backwards, is at
most the time of the remaining forward steps and transfers.

What was written before costs nothing now. So a state may first be read to write others for later backwards, without a
use for the next backward b. Let D(i, j, k) be the minimum cost of the later backwards k .. j < b from x_i in this way,
with the price h of the others until the backward k:

    W(i, j, k) = min over a of w_a(i) + h_a(i, k+1, b) + F_a(i, j, k)
    D(i, j, k) = min(f_i + D(i+1, j, k), W(i, j, k), min over j < q <= k of D(i, q, k) + W(i, j, q-1))

As the price changes by the same factor in all memories, such a read is best now or never.
"""

from __future__ import annotations

import math
from functools import lru_cache
from operator import itemgetter

import numpy as np

from remat.plugin import Context, NumberArray, Problem
from remat_algorithms.dag.exact.bit_masks import members
from remat_algorithms.joint.adjoint_best.capacity_prices import PricedMemories, PriceTable, best_of_prices
from remat_algorithms.joint.adjoint_best.model import Model, Situation
from remat_algorithms.kit.integral_bounds import is_whole

SAFE = 1e-6


class RemainingTime:
    """The bound at good prices; call it with a situation."""

    def __init__(self, model: Model, loop: PricedMemories, context: Context, *, whole: bool) -> None:
        self.whole = whole
        self.row = {memory: row for row, memory in enumerate(loop.memory)}
        table = PriceTable(loop)

        def stopped() -> bool:
            return context.stopped

        _, self.rate, profile = best_of_prices(table, loop, stopped)
        self.possible = table.cheapest(self.rate, profile, stopped) is not None
        self.sums = table.profile
        self.size, record = loop.size, table.record
        self.record, self.forward = record, loop.forward
        last = record.read[:, None, None, :] + record.live
        self.cost: NumberArray = np.minimum(last, record.again[:, None, None, :] + record.stay)
        paid = (self.rate[:, None] * loop.limits * profile).sum(axis=0)
        self.fixed: list[float] = np.cumsum(np.array(model.backward, float) - paid).tolist()
        self.ranges = lru_cache(maxsize=None)(self._ranges)
        self.moved = lru_cache(maxsize=None)(self._moved)

    @staticmethod
    def of(problem: Problem, model: Model, context: Context) -> RemainingTime | None:
        """Find prices for a problem; None if the relaxation does not cover it, or the context stops."""
        loop = PricedMemories.of(problem)
        if loop is None or not loop.rounds:
            return None
        found = RemainingTime(model, loop, context, whole=is_whole(problem))
        return found if found.possible else None

    def __call__(self, situation: Situation) -> float:
        """Return a bound on the time from a situation to the end."""
        back, held = situation
        if back < 0:
            return 0
        places = [
            (i, self.row[memory]) for memory, states in enumerate(held) if memory in self.row for i in members(states)
        ]
        before = np.full(back + 2, np.inf)  # [k + 1]: T(k)
        before[0] = 0
        # Copies of one state serve ranges in any order.
        several = len({i for i, _ in places}) < len(places)
        for i, row in sorted(places * (len(self.row) if several else 1), key=itemgetter(0)):
            if i <= back:
                found = (before[:-1, None] + self.ranges(row, i, back)).min(axis=0)
                np.minimum(before[1:], found, out=before[1:])
        rest = float(before[-1]) + self.fixed[back]
        rest -= SAFE * (1 + abs(rest))
        return math.ceil(rest) if self.whole and math.isfinite(rest) else rest

    def _ranges(self, row: int, i: int, back: int) -> NumberArray:
        """Return c(j, k) of x_i in a memory, for j, k = 0 .. back; infinite for j < i or k < j."""
        span = np.arange(back + 1)
        price = self.rate[row] * self.size[i] * (self.sums[back + 1] - self.sums[1 : back + 2])
        costs: NumberArray = self.cost[row, : back + 1, : back + 1, i] + price
        costs = np.minimum(costs, self.record.again[row, i] + self.moved(back)[:, :, i])
        return np.where((span[:, None] >= i) & (span[None, :] >= span[:, None]), costs, np.inf)

    def _moved(self, back: int) -> NumberArray:
        """Return D(i, j, k) as [j, k, i], for the next backward `back`."""
        n, record = len(self.size), self.record
        first = record.read[:, None, None, :] + np.minimum(record.live, record.stay)
        until = (self.sums[back + 1] - self.sums[1:])[None, None, :, None]
        held = self.rate[:, None, None, None] * self.size * until
        written = (record.write[:, None, None, :] + held + first).min(axis=0)
        found = np.full((back + 1, back + 1, n), np.inf)
        for j in range(back - 1, -1, -1):
            for k in range(j, back):
                best = written[j, k, : j + 1].copy()
                for q in range(j + 1, k + 1):
                    np.minimum(best, found[q, k, : j + 1] + written[j, q - 1, : j + 1], out=best)
                for i in range(j - 1, -1, -1):
                    best[i] = min(best[i], self.forward[i] + best[i + 1])
                found[j, k, : j + 1] = best
        return found
