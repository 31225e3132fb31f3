"""Exhaustive search for tiny adjoints with or without tapes and a slow memory, which may store any whole value."""

import heapq


def best_time(n, working, state, tape, adjoint, write, read):
    """Return the minimum time of runs and moves of n equal steps, or None.

    Sizes are bytes. Each run takes 1, a backward 0. `tape` None: the backward of step k reads x_k.
    """
    size = {"x": state, "t": tape, "y": adjoint}
    # Values in the working memory and in the slow one; the next backward; whether the loss has run.
    start = (frozenset([("x", 0)]), frozenset(), n - 1, tape is None)
    best, queue = {start: 0}, [(0, 0, start)]

    def used(values):
        return sum(size[kind] for kind, _ in values)

    def moves(node):
        held, slow, back, lost = node
        for value in held:
            yield 0, held - {value}, slow, back, lost
            if value not in slow:
                yield write, held, slow | {value}, back, lost
        for value in slow - held:
            yield read, held | {value}, slow, back, lost
        for kind, k in held:
            if kind == "x" and k < (n if tape is not None else n - 1) and k <= back:
                for gone in (frozenset(), frozenset([(kind, k)])):
                    yield 1, held - gone | {("x", k + 1)}, slow, back, lost
                    if tape is not None:
                        yield 1, held - gone | {("x", k + 1), ("t", k)}, slow, back, lost
        if not lost and ("x", n) in held:
            yield 0, held - {("x", n)} | {("y", n)}, slow, back, True
        above = frozenset() if tape is None and back == n - 1 else frozenset([("y", back + 1)])
        needed = above | {("x" if tape is None else "t", back)}
        if lost and needed <= held:
            # Values that nothing reads later are dropped; slow memory is unlimited.
            late = {value for value in held | slow if value[1] > back - (value[0] == "t") and value[0] != "y"}
            yield 0, held - needed - late | {("y", back)}, slow - needed - late, back - 1, lost

    while queue:
        cost, _, node = heapq.heappop(queue)
        if node[2] < 0:
            return cost
        if cost > best[node]:
            continue
        for took, *after in moves(node):
            after = tuple(after)
            if used(after[0]) <= working and cost + took < best.get(after, 10**9):
                best[after] = cost + took
                heapq.heappush(queue, (cost + took, len(best), after))
    return None
