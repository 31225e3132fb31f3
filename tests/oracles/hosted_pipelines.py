"""Exhaustive search for tiny pipelines with a host: orders, and the recomputed or offloaded layers per micro-batch.

Written from the rules alone, for layers without outputs on devices in a row, one stage each. A forward occupies its
peak bytes for its whole duration. After it, the device holds the saved values of layers that are neither recomputed nor
offloaded. Offloaded values leave one by one when the forward ends. They free their bytes after the transfer, and occupy
them again when the return starts. A backward occupies its peak bytes for its whole duration. It starts with its
recomputation, or the recomputation runs ahead while the gradient is in transfer. On a device, allocations follow the
order of the search.
"""

import itertools


def best_makespan(stages, batches, room, bandwidth, limit=float("inf")):
    """Return the minimum makespan below a limit, or None.

    Parameters
    ----------
    stages : sequence of sequences of (forward, backward, saved)
        Layers of each device: times and bytes of a micro-batch.
    batches : int
    room : sequence of int
        Bytes of each device for saved values.
    bandwidth : number
        Of each direction of a device's link.
    limit : number
    """
    every = [(s, b) for s in range(len(stages)) for b in range(batches)]
    best = [limit]
    for ways in itertools.product(*(list(itertools.product("kra", repeat=len(stages[s]))) for s, _ in every)):
        _Search(stages, batches, room, bandwidth, dict(zip(every, ways, strict=True)), best).go()
    return None if best[0] == limit else best[0]


class _Search:
    def __init__(self, stages, batches, room, bandwidth, ways, best):
        self.stages, self.batches, self.room, self.best = stages, batches, room, best
        self.of = {key: _figures(stages[key[0]], way, bandwidth) for key, way in ways.items()}
        self.seen = set()

    def go(self):
        count = len(self.stages)
        self.next({}, [0] * count, [0] * count, [0] * count, [()] * count, [()] * count)

    def next(self, ends, clocks, outs, backs, changes, orders):
        if max(clocks) >= self.best[0] or (key := tuple(orders)) in self.seen:
            return
        self.seen.add(key)
        ops = [
            (phase, s, b)
            for s in range(len(self.stages))
            for b in range(self.batches)
            for phase in "FRB"
            if (phase, s, b) not in ends and (phase != "R" or self.of[s, b]["away"])
        ]
        if not ops:
            self.best[0] = max(clocks)
            return
        for op in ops:
            for ahead in (False, True) if op[0] == "B" and self.of[op[1:]]["again"] else (False,):
                self.run(op, ahead, ends, clocks, outs, backs, changes, orders)

    def run(self, op, ahead, ends, clocks, outs, backs, changes, orders):
        phase, s, b = op
        own, last = self.of[s, b], s + 1 == len(self.stages)
        wanted = {"F": [("F", s - 1, b)] if s else [], "R": [("F", s, b)], "B": [("F", s, b)]}[phase]
        wanted = [*wanted, *([("B", s + 1, b)] if phase == "B" and not last else [])]
        wanted += [("R", s, b)] if phase == "B" and own["away"] else []
        wanted += [(phase, s, b - 1)] if b and (phase != "R" or self.of[s, b - 1]["away"]) else []
        if any(one not in ends for one in wanted):
            return
        ready = max((ends[one] for one in wanted), default=0)
        if phase == "R":
            ready = ends["gone", s, b]
            size, start = own["away"], max(ready, backs[s])
        elif phase == "F":
            size, start = own["forward"], max(ready, clocks[s])
        elif ahead:
            here = max(ends[one] for one in wanted if one[1] == s)
            size, start = own["ahead"], max(here, clocks[s], ready - own["again"])
        else:
            size, start = own["backward"], max(ready, clocks[s])
        start = self.earliest(s, start, size, changes[s])
        if start is None:
            return
        time = {"F": own["time"], "R": own["trip"], "B": own["back"] + own["again"]}[phase]
        end = max(start + own["again"], ready) + own["back"] if ahead else start + time
        moved = [(start, size)] if size else []
        ends, outs, backs, clocks = dict(ends), [*outs], [*backs], [*clocks]
        ends[op] = end
        if phase == "F":
            moved.append((end, own["held"] - size))
            if own["away"]:
                outs[s] = max(outs[s], end) + own["trip"]
                ends["gone", s, b] = outs[s]
                moved.append((outs[s], -own["away"]))
        elif phase == "B":
            moved.append((end, -own["held"] - size))
        if phase == "R":
            backs[s] = end
        else:
            clocks[s] = end
        changes, orders = [*changes], [*orders]
        changes[s] += tuple(moved)
        orders[s] += ((op, ahead),)
        self.next(ends, clocks, outs, backs, changes, orders)

    def earliest(self, s, start, size, changes):
        """Return when so many bytes can be taken, not before bytes that were taken earlier in the order."""
        if not size:
            return start
        start = max([start, *(time for time, change in changes if change > 0)])
        for instant in sorted({start, *(time for time, _ in changes if time > start)}):
            if sum(change for time, change in changes if time <= instant) + size <= self.room[s]:
                return instant
        return None


def _figures(layers, way, bandwidth):
    """Return times and bytes of a stage whose layers are kept (k), recomputed (r) or offloaded (a)."""
    held = most = 0
    for (_, _, saved), kind in zip(layers, way, strict=True):
        most = max(most, held + saved)
        held += 0 if kind == "r" else saved
    again = sum(saved for (_, _, saved), kind in zip(layers, way, strict=True) if kind == "r")
    live = back = held
    for (_, _, saved), kind in reversed(list(zip(layers, way, strict=True))):
        back = max(back, live + (saved if kind == "r" else 0))
        live -= 0 if kind == "r" else saved
    away = sum(saved for (_, _, saved), kind in zip(layers, way, strict=True) if kind == "a")
    return {
        "time": sum(forward for forward, _, _ in layers),
        "back": sum(backward for _, backward, _ in layers),
        "again": sum(forward for (forward, _, _), kind in zip(layers, way, strict=True) if kind == "r"),
        "held": held,
        "forward": most,
        "backward": back - held,
        "ahead": again,
        "away": away,
        "trip": away / bandwidth,
    }
