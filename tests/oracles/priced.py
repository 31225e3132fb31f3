"""Exhaustive search for tiny loops without limits of memory, where each byte held during a backward has a price.

Written from the formats' rules alone: sets of states in memories; each move is a drop, a copy or a run.
"""

import heapq
import itertools


def least_cost(forward, size, levels, price):
    """Return the minimum of forward times, transfer times and prices.

    Parameters
    ----------
    forward : sequence of n-1 numbers
    size : sequence of n numbers
        Of x_0 .. x_{n-1}.
    levels : sequence of (write time, read time)
        Storage levels; each time is a number, or a sequence with one for each state.
    price : sequence of sequences
        For the working memory and each level, the price of a byte during the backward of each step. The state that the
        backward consumes costs nothing in the working memory.
    """
    n = len(size)
    start = (n - 1, (frozenset([0]), *(frozenset() for _ in levels)))
    cost, ticket = {start: 0}, itertools.count()
    queue, settled = [(0, 0, start)], set()
    while queue:
        spent, _, situation = heapq.heappop(queue)
        if situation in settled:
            continue
        settled.add(situation)
        if situation[0] < 0:
            return spent
        for took, after in _moves(situation, forward, size, levels, price):
            if after not in cost or spent + took < cost[after]:
                cost[after] = spent + took
                heapq.heappush(queue, (spent + took, next(ticket), after))
    return None


def _moves(situation, forward, size, levels, price):
    back, held = situation
    for memory, states in enumerate(held):
        for t in states:
            yield 0, (back, _changed(held, memory, states - {t}))
    for t in held[0]:
        if t < back and t + 1 not in held[0]:
            yield forward[t], (back, _changed(held, 0, held[0] | {t + 1}))
    if back in held[0]:
        rent = sum(price[a][back] * size[t] for a, states in enumerate(held) for t in states if a or t != back)
        yield rent, (back - 1, tuple(states - {back} for states in held))
    for level, (write, read) in enumerate(levels, start=1):
        for t in held[0] - held[level]:
            yield _of(write, t), (back, _changed(held, level, held[level] | {t}))
        for t in held[level] - held[0]:
            yield _of(read, t), (back, _changed(held, 0, held[0] | {t}))


def _of(times, t):
    return times[t] if isinstance(times, (list, tuple)) else times


def _changed(held, memory, states):
    return (*held[:memory], states, *held[memory + 1 :])
