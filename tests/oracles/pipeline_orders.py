"""Exhaustive search for tiny pipelines: every order of every device, one unit of work at a time, in place.

Written from the rules alone: stages in a chain, micro-batches ascending for each stage and phase, one operation at a
time on a device, bytes from the start of F to the end of B, others to the end of W, a release before an acquisition.
With copies of the stages there are several chains, each with separate micro-batches.
"""

import itertools


def best_figure(pipeline, *, span=False):
    """Return the minimum makespan, or the minimum of the largest device span; None if no order fits.

    Parameters
    ----------
    pipeline : object
        With `place`, `batches`, `forward`, `backward`, `weight`, `hop`, `activation`, `kept`, `fixed`, `capacity`,
        and `chains`: pairs of a first stage and a number of micro-batches, or none for one chain.
    span : bool
    """
    devices = range(len(pipeline.fixed))
    choices = [list(words(pipeline, device)) for device in devices]
    best = None
    for lists in itertools.product(*choices):
        found = run(pipeline, lists)
        if found is not None:
            value = least_span(pipeline, lists) if span else max(end for _, end in found.values())
            best = value if best is None else min(best, value)
    return best


def micro_batches(pipeline):
    """Return, for each stage, its micro-batches and whether it is the first and the last of its chain."""
    chains = list(pipeline.chains) or [(0, pipeline.batches)]
    firsts = [first for first, _ in chains]
    count = [
        next(number for first, number in reversed(chains) if first <= stage) for stage in range(len(pipeline.place))
    ]
    ends = [stage + 1 in [*firsts, len(pipeline.place)] for stage in range(len(pipeline.place))]
    return count, [stage in firsts for stage in range(len(pipeline.place))], ends


def words(pipeline, device):
    """Yield the orders of a device that fit into its bytes and run no B before its F, no W before its B."""
    own = [stage for stage, place in enumerate(pipeline.place) if place == device]
    phases = [(phase, stage) for stage in own for phase in "FBW" if phase != "W" or pipeline.weight[stage]]
    limit = pipeline.capacity[device]
    count, _, _ = micro_batches(pipeline)

    def used(done, running):
        total = pipeline.fixed[device]
        for stage in own:
            for batch in range(count[stage]):
                begun = [phase for phase in "FBW" if batch < done.get((phase, stage), 0)]
                now = running[0] if running and running[1:] == (stage, batch) else None
                sizes = [0]
                if (now == "F" or "F" in begun) and "B" not in begun:
                    sizes.append(pipeline.activation[stage])
                if (now == "B" or "B" in begun) and "W" not in begun:
                    sizes.append(pipeline.kept[stage])
                total += max(sizes)
        return total

    def go(done, listed):
        if len(listed) == sum(count[stage] for _, stage in phases):
            yield tuple(listed)
            return
        for phase, stage in phases:
            batch = done.get((phase, stage), 0)
            before = {"B": "F", "W": "B"}.get(phase)
            if batch == count[stage] or (before and done.get((before, stage), 0) <= batch):
                continue
            op = (phase, stage, batch)
            if limit is not None and used(done, op) > limit:
                continue
            yield from go(done | {(phase, stage): batch + 1}, [*listed, op])

    if limit is None or used({}, None) <= limit:
        yield from go({}, [])


def run(pipeline, lists, delayed=(), ways=None):
    """Return start and end of each operation, as early as lists and data allow; None for a deadlock."""
    time = {"F": pipeline.forward, "B": pipeline.backward, "W": pipeline.weight}
    _, is_first, is_last = micro_batches(pipeline)
    found = {}
    going = True
    while going:
        going = False
        for device, listed in enumerate(lists):
            clock = dict(delayed).get(device, 0)
            for phase, stage, batch in listed:
                op = (phase, stage, batch)
                if op in found:
                    clock = found[op][1]
                    continue
                sources = []
                if phase == "F" and not is_first[stage]:
                    sources = [(("F", stage - 1, batch), stage - 1)]
                elif phase == "B":
                    sources = [(("F", stage, batch), None)]
                    if not is_last[stage]:
                        sources.append((("B", stage + 1, batch), stage))
                elif phase == "W":
                    sources = [(("B", stage, batch), None)]
                if any(source not in found for source, _ in sources):
                    break
                for source, link in sources:
                    apart = link is not None and pipeline.place[link] != pipeline.place[link + 1]
                    clock = max(clock, found[source][1] + (pipeline.hop[link] if apart else 0))
                found[op] = (clock, clock + time[phase][stage])
                clock += time[phase][stage]
                going = True
    return found if len(found) == sum(map(len, lists)) else None


def least_span(pipeline, lists):
    """Return the least largest span of lists with whole times: span by span, devices begin later while it helps."""
    used = [device for device, listed in enumerate(lists) if listed]
    first = run(pipeline, lists)
    most = max(end for _, end in first.values())
    for span in range(most + 1):
        delayed = dict.fromkeys(used, 0)
        while max(delayed.values()) <= most * len(used):
            found = run(pipeline, lists, delayed.items())
            late = {device: max(delayed[device], found[lists[device][-1]][1] - span) for device in used}
            if all(found[lists[device][0]][0] >= late[device] for device in used):
                return span
            delayed = late
    raise AssertionError("the makespan itself is a span")
