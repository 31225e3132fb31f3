"""Exhaustive search for tiny adjoints with sizes in bytes, on several memories: whole states, one move at a time.

Written from the formats' rules alone: memory contents as sets; each move is a free drop, a copy or an in-place run.
"""

import heapq
import itertools


def best_cost(forward, backward, state, adjoint, working, levels, initial_level=None):
    """Return the minimum makespan, or None.

    Parameters
    ----------
    forward : sequence of n-1 numbers
    backward : sequence of n numbers
    state, adjoint : sequences of n sizes
        Of x_0 .. x_{n-1} and y_0 .. y_{n-1}.
    working : int
        Capacity of the memory in which everything is computed, adjoints included.
    levels : sequence of (capacity, write time, read time, bandwidth or None)
    initial_level : int, optional
        A level in which x_0 lies, too.
    """
    n = len(backward)
    room = [working, *(level[0] for level in levels)]
    held = [frozenset([0]), *(frozenset([0] if k == initial_level else []) for k in range(len(levels)))]
    if any(sum(state[t] for t in states) > size for states, size in zip(held, room, strict=True)):
        return None
    start = (n - 1, tuple(held))

    def used(memory, situation):
        back, held = situation
        alive = adjoint[back + 1] if memory == 0 and back + 1 < n else 0
        return alive + sum(state[t] for t in held[memory])

    def least(situation):
        """Bound: what must still run at least once."""
        back, held = situation
        missing = set(range(1, back + 1)) - frozenset().union(*held)
        return sum(backward[: back + 1]) + sum(forward[t - 1] for t in missing)

    def moves(situation):
        back, held = situation
        for memory, states in enumerate(held):
            for t in states:
                yield 0, (back, _with(held, memory, states - {t}))
        working_states = held[0]
        for t in working_states:
            if t < back and t + 1 not in working_states:
                for gone in (frozenset(), frozenset([t])):
                    freed = sum(state[i] for i in gone)
                    if used(0, situation) + max(0, state[t + 1] - freed) <= room[0]:
                        yield forward[t], (back, _with(held, 0, working_states - gone | {t + 1}))
        if back in working_states:
            freed = state[back] + (adjoint[back + 1] if back + 1 < n else 0)
            if used(0, situation) + max(0, adjoint[back] - freed) <= room[0]:
                yield backward[back], (back - 1, tuple(states - {back} for states in held))
        for k, (_, write, read, bandwidth) in enumerate(levels, start=1):
            for source, target, latency in ((0, k, write), (k, 0, read)):
                for t in held[source] - held[target]:
                    if used(target, situation) + state[t] <= room[target]:
                        took = latency + (0 if bandwidth is None else state[t] / bandwidth)
                        yield took, (back, _with(held, target, held[target] | {t}))

    cost, ticket = {start: 0}, itertools.count(1)
    queue, settled = [(least(start), 0, start)], set()
    while queue:
        _, _, situation = heapq.heappop(queue)
        if situation in settled:
            continue
        settled.add(situation)
        if situation[0] < 0:
            return cost[situation]
        for took, after in moves(situation):
            total = cost[situation] + took
            if after not in cost or total < cost[after]:
                cost[after] = total
                heapq.heappush(queue, (total + least(after), -next(ticket), after))
    return None


def _with(held, memory, states):
    return (*held[:memory], states, *held[memory + 1 :])
