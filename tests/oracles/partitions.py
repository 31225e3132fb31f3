"""Best cuts of layers into stages by exhaustive search, with their 1F1B and 1F1B* schedules; small cases only.

Conventions
-----------
Layer l has times `f`, `b`, `activation` bytes held from its forward to its backward, and resident `weights` bytes;
`transfer[l]` is the time from layer l to the next one, and as much back. Of p stages, with m micro-batches:

- `max_compute`, `max_load`: minimum over cuts of the largest f + b of a stage; the same with its transfers in both
  directions at both ends;
- `flush_any`, `flush_fit`: minimum makespan of 1F1B, without and with memory limits: stage s (from 0) keeps weights and
  min(p - s, m) activations; a transfer occupies its link;
- `period_fit_double`: minimum period of 1F1B* if a stage of group g keeps g activations and min(2, g) weights.
"""

import itertools


def cuts_of(layers, parts):
    """Yield all cuts of so many layers into parts that are not empty."""
    for inner in itertools.combinations(range(1, layers), parts - 1):
        yield [0, *inner, layers]


def split(values, cuts):
    """Return the sums of the parts."""
    return [sum(values[first:end]) for first, end in itertools.pairwise(cuts)]


def least(candidates):
    """Return the least of what is not None, or None."""
    return min((value for value in candidates if value is not None), default=None)


def keeps(activation, weights, cuts, batches):
    """Return what each stage keeps at most under 1F1B."""
    parts = zip(split(activation, cuts), split(weights, cuts), strict=True)
    return [w + min(len(cuts) - 1 - s, batches) * a for s, (a, w) in enumerate(parts)]


def one_forward_one_backward(forward, backward, hops, batches):
    """Return the makespan of 1F1B: sweep over the stages until nothing more is known."""
    count = len(forward)
    lists = []
    for s in range(count):
        first = min(count - s - 1, batches)
        listed = [("F", k) for k in range(first)]
        for k in range(first, batches):
            listed += [("F", k), ("B", k - first)]
        lists.append(listed + [("B", k) for k in range(batches - first, batches)])
    return run(forward, backward, hops, lists)


def run(forward, backward, hops, lists):
    """Return the end of one list per stage; a transfer occupies its link, one link per direction."""
    count = len(forward)
    at, clock, end, come, free = [0] * count, [0] * count, {}, {}, {}
    moving = True
    while moving:
        moving = False
        for s in range(count):
            while at[s] < len(lists[s]):
                phase, k = lists[s][at[s]]
                if phase == "F":
                    known = 0 if s == 0 else come.get(("F", s, k))
                else:
                    known = end.get(("F", s, k)) if s == count - 1 else come.get(("B", s, k))
                if known is None:
                    break
                clock[s] = max(clock[s], known) + (forward[s] if phase == "F" else backward[s])
                end[phase, s, k] = clock[s]
                target = s + 1 if phase == "F" else s - 1
                if 0 <= target < count:
                    way = (phase, s)
                    free[way] = max(free.get(way, 0), clock[s]) + hops[min(s, target)]
                    come[phase, target, k] = free[way]
                at[s] += 1
                moving = True
    assert all(at[s] == len(lists[s]) for s in range(count))
    return max(clock)


def eager(forward, backward, hops, caps, batches):
    """Return the lists of stages that run a ready backward first, else a forward, tick by tick.

    All times whole, those of stages at least 1; at most `caps` micro-batches in each stage.
    """
    count = len(forward)
    lists = [[] for _ in forward]
    busy = [0] * count
    sent = {("F", 0, k): 0 for k in range(batches)}
    free, done, tick = {}, [{"F": 0, "B": 0} for _ in forward], 0
    ending = []
    while any(passed["B"] < batches for passed in done):
        for entry in sorted(ending):
            if entry[0] != tick:
                continue
            ending.remove(entry)
            _, s, phase, k = entry
            done[s][phase] += 1
            target = s + 1 if phase == "F" else s - 1
            if target == count:
                sent["B", s, k] = tick
            elif target >= 0:
                way = (phase, s)
                free[way] = max(free.get(way, 0), tick) + hops[min(s, target)]
                sent[phase, target, k] = free[way]
        for s in range(count):
            if busy[s] > tick:
                continue
            began = {phase: sum(phase == other for other, _ in lists[s]) for phase in "FB"}
            for phase in "BF":
                k = began[phase]
                room = phase == "B" or k - done[s]["B"] < caps[s]
                if room and sent.get((phase, s, k), tick + 1) <= tick and k < batches:
                    lists[s].append((phase, k))
                    busy[s] = tick + (forward[s] if phase == "F" else backward[s])
                    ending.append((busy[s], s, phase, k))
                    break
        tick += 1
    return lists


def groups(work, hops, period):
    """Return the group of each stage in 1F1B*; None where a unit is longer than the period."""
    units = [("stage", work[0])]
    for hop, stage in zip(hops, work[1:], strict=True):
        units += [("link", 2 * hop), ("stage", stage)]
    if any(time > period for _, time in units):
        return None
    found, group, total = [], 1, 0
    for kind, time in units[::-1]:
        if total + time > period:
            group, total = group + 1, 0
        total += time
        if kind == "stage":
            found.append(group)
    return found[::-1]


def least_period(work, hops, activation, weights, memory, versions=2):
    """Return the least whole period with which every stage fits; None: not even one micro-batch at a time does."""
    for period in range(sum(work) + 2 * sum(hops) + 1):
        found = groups(work, hops, period)
        if found is not None and all(
            memory is None or g * a + min(versions, g) * w <= memory
            for g, a, w in zip(found, activation, weights, strict=True)
        ):
            return period
    return None


def best(point):
    """Return all figures of a point, over all cuts."""
    stages, batches, memory = point["p"], point["m"], point["memory"]
    found = {key: [] for key in ("max_compute", "max_load", "flush_any", "flush_fit", "period_fit_double")}
    for cuts in cuts_of(len(point["f"]), stages):
        forward, backward, activation, weights = (
            split(point[key], cuts) for key in ("f", "b", "activation", "weights")
        )
        hops = [point["transfer"][cut - 1] for cut in cuts[1:-1]]
        work = [f + b for f, b in zip(forward, backward, strict=True)]
        found["max_compute"].append(max(work))
        ways = zip(work, [0, *hops], [*hops, 0], strict=True)
        found["max_load"].append(max(own + 2 * before + 2 * after for own, before, after in ways))
        makespan = one_forward_one_backward(forward, backward, hops, batches)
        found["flush_any"].append(makespan)
        if max(keeps(point["activation"], point["weights"], cuts, batches)) <= memory:
            found["flush_fit"].append(makespan)
        found["period_fit_double"].append(least_period(work, hops, activation, weights, memory))
    return {key: least(values) for key, values in found.items()}
