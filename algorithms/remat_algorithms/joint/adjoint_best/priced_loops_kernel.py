"""The cheapest schedule of a time loop where memory has a price, in machine code (see `kit.compile`).

`capacity_prices` states the recurrence and proves it. Positions i, j, k count steps; level a is a place for states.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from remat.plugin import IntArray, NumberArray
from remat_algorithms.kit.compile.lowering import Kernel

STORED_LEVEL, FIRST, LOWEST, HIGHEST, USED = range(5)
"""Rows of the stack: the level (-1: live), the state, the range of steps, and whether the copy was read before."""
FIELDS = 5


class PricedLoop(NamedTuple):
    """A loop of n steps on levels, with prices.

    Attributes
    ----------
    forward, size : (n,) float64
    write, read, again : (levels, n) float64
        Times to write and to read a state; `again` that of a read which is neither the first nor the last of its copy.
    rate : (levels,) float64
        Price of a byte during one backward; 0 where capacity is unlimited.
    profile : (n + 1,) float64
        Sums of a factor of the price over the backwards 0, 1, ..
    live : (n, n, n) float64
        [j, k, i]: least cost of the backwards k .. j from x_i, which is live.
    stay : (levels, n, n, n) float64
        [a, j, k, i]: the same from x_i in level a, if it is read before the backward k and again later, without the
        first of these reads.
    fresh, kept : (levels, n, n) float64
        [a, k, i]: the same from x_i in level a, for the current j and before any read or after one.
    used : (levels, n) float64
        Bytes held during each backward.
    stack : (5, n * levels + n + 2) int64
    """

    forward: NumberArray
    size: NumberArray
    write: NumberArray
    read: NumberArray
    again: NumberArray
    rate: NumberArray
    profile: NumberArray
    live: NumberArray
    stay: NumberArray
    fresh: NumberArray
    kept: NumberArray
    best: NumberArray
    used: NumberArray
    stack: IntArray


def lower_to(
    best: NumberArray, ahead: NumberArray, later: NumberArray, size: NumberArray, price: float, n: int
) -> None:
    """Lower each of the first n entries to the cost of one split."""
    for i in range(n):
        cost = ahead[i] + later[i] + price * size[i]
        best[i] = cost if cost < best[i] else best[i]


def fill_from(loop: PricedLoop, j: int) -> None:
    """Fill all entries whose last backward is that of step j; those with a larger j must be filled."""
    n, levels = loop.size.shape[0], loop.rate.shape[0]
    for k in range(j, n):
        for a in range(levels):
            for i in range(j + 1):
                loop.best[a, i] = math.inf
                loop.stay[a, j, k, i] = math.inf
            for q in range(j + 1, k + 1):
                price = loop.rate[a] * (loop.profile[k + 1] - loop.profile[q])
                lower_to(loop.best[a], loop.live[q, k], loop.fresh[a, q - 1], loop.size, price, j + 1)
                lower_to(loop.stay[a, j, k], loop.live[q, k], loop.kept[a, q - 1], loop.size, price, j + 1)
        for i in range(j, -1, -1):
            cost = math.inf
            if i == k:
                cost = 0.0
            elif i < j:
                cost = loop.forward[i] + loop.live[j, k, i + 1]
            for a in range(levels):
                cost = min(cost, loop.write[a, i] + loop.best[a, i])
            loop.live[j, k, i] = cost
            for a in range(levels):
                stay = loop.stay[a, j, k, i]
                loop.fresh[a, k, i] = loop.read[a, i] + min(cost, stay)
                loop.kept[a, k, i] = min(loop.read[a, i] + cost, loop.again[a, i] + stay)


def stored(loop: PricedLoop, a: int, i: int, j: int, k: int, used: int) -> float:
    """Return the cost of the backwards k .. j from x_i in level a."""
    again = loop.again[a, i] if used else loop.read[a, i]
    return float(min(loop.read[a, i] + loop.live[j, k, i], again + loop.stay[a, j, k, i]))


def push(loop: PricedLoop, top: int, a: int, i: int, j: int, k: int, used: int) -> int:
    """Add a part of the schedule; return the height of the stack."""
    loop.stack[STORED_LEVEL, top] = a
    loop.stack[FIRST, top] = i
    loop.stack[LOWEST, top] = j
    loop.stack[HIGHEST, top] = k
    loop.stack[USED, top] = used
    return top + 1


def hold(loop: PricedLoop, a: int, i: int, q: int, k: int) -> float:
    """Return the price of x_i in level a during the backwards k .. q."""
    return float(loop.rate[a] * (loop.profile[k + 1] - loop.profile[q]) * loop.size[i])


def trace(loop: PricedLoop) -> None:
    """Add up the bytes that a cheapest schedule holds during each backward."""
    n, levels = loop.size.shape[0], loop.rate.shape[0]
    for a in range(levels):
        for k in range(n):
            loop.used[a, k] = 0.0
    top = push(loop, 0, -1, 0, 0, n - 1, 0)
    while top > 0:
        top -= 1
        level, i = loop.stack[STORED_LEVEL, top], loop.stack[FIRST, top]
        j, k, used = loop.stack[LOWEST, top], loop.stack[HIGHEST, top], loop.stack[USED, top]
        if i == k and level < 0:
            continue
        cost, at, split = math.inf, -1, -1
        if level >= 0:
            for q in range(j + 1, k + 1):
                one = loop.live[q, k, i] + hold(loop, level, i, q, k) + stored(loop, level, i, j, q - 1, 1)
                if one < cost:
                    cost, at, split = one, level, q
            cost += loop.again[level, i] if used else loop.read[level, i]
            if loop.read[level, i] + loop.live[j, k, i] <= cost:
                top = push(loop, top, -1, i, j, k, 0)
                continue
            used = 1
        else:
            for a in range(levels):
                for q in range(j + 1, k + 1):
                    one = loop.write[a, i] + loop.live[q, k, i] + hold(loop, a, i, q, k)
                    one += stored(loop, a, i, j, q - 1, 0)
                    if one < cost:
                        cost, at, split = one, a, q
            if i < j and loop.forward[i] + loop.live[j, k, i + 1] <= cost:
                top = push(loop, top, -1, i + 1, j, k, 0)
                continue
            used = 0
        for t in range(split, k + 1):
            loop.used[at, t] += loop.size[i]
        top = push(loop, top, at, i, j, split - 1, used)
        top = push(loop, top, -1, i, split, k, 0)


FILL = Kernel(fill_from, long_loops=True)
TRACE = Kernel(trace)
