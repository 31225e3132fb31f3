"""Exhaustive search for adjoints whose tapes can be stored (tiny n)."""

import heapq


def best_forward_steps(n, size, state, tape, internal):
    """Return the minimum forward steps over all orders of storing and restarting, or None.

    `state`, `tape` and `internal` (a tape with its output) are bytes of storage; None forbids storing it. If `internal`
    is given, x_0 is in storage without counting (`bptt-*`); otherwise it is stored like any state.
    """
    kinds = {"state": state, "tape": tape, "internal": internal}
    free = internal is not None or tape is None
    # Stored items, the live state, the live tape, the next backward.
    start = (frozenset(), 0, -1, n - 1)
    best, queue = {start: 0}, [(0, 0, start)]
    while queue:
        cost, _, node = heapq.heappop(queue)
        items, live, made, back = node
        if back < 0:
            return cost
        if cost > best[node]:
            continue
        used = sum(kinds[kind] or 0 for kind, _ in items)
        moves = [(0, (items - {item}, live, made, back)) for item in items]
        if live < n:
            moves += [(1, (items, live + 1, made, back)), (1, (items, live + 1, live, back))]
        if back in (made, *(i for kind, i in items if kind != "state")):
            moves.append((0, (items, live, made, back - 1)))
        moves += [(0, (items, i + (kind == "internal"), made, back)) for kind, i in items if kind != "tape"]
        if free:
            moves.append((0, (items, 0, made, back)))
        new = {"state": live, "tape": made, "internal": made if made == live - 1 else -1}
        for kind, taken in kinds.items():
            item = (kind, new[kind])
            if taken is not None and item[1] >= 0 and item not in items and used + taken <= size:
                moves.append((0, (items | {item}, live, made, back)))
        for time, after in moves:
            if cost + time < best.get(after, 10**9):
                best[after] = cost + time
                heapq.heappush(queue, (cost + time, len(best), after))
    return None
