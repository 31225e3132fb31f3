"""Simulate the orders of a pipeline: one list of operations a device, times a stage, hops between devices.

Every device runs its list in order, each operation as early as it and its data allow. Operations are read from their
text: ``F2.0`` is the forward of stage 2 for micro-batch 0, ``B`` its backward, ``W`` the gradient of its weights,
``BW`` both gradients in one operation; ``F2.0&BW5.3`` runs both at once, with a separate time.

Readings of the conventions where they are brief
------------------------------------------------
- What a device sends to another becomes ready in the order of its list; so "first ready, first sent" is that order.
- A stage's activation is taken at the start of F, and freed at the end of B; where the lists have a W for that stage
  and micro-batch, B leaves `kept` of it, and the end of W frees that. BW frees all.
- Two operations at once: the data of both at the start, the results of both at the end; F's result is sent first.
- The span of a device that runs nothing is 0.
"""

from collections import defaultdict, deque
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Run:
    """What happened: `starts` has the start of each operation by its text; busy and peak are per device."""

    makespan: object
    span: object
    busy: tuple
    peak: tuple
    starts: dict


def run(
    lists,
    place,
    chains,
    *,
    forward,
    backward,
    weight=0,
    paired=None,
    hop=0,
    transfers="delay",
    activation=1,
    kept=Fraction(1, 2),
):
    """Run the lists; None where they deadlock.

    Parameters
    ----------
    lists : sequence of sequences
        Per device, operations whose text is as above.
    place : sequence of int
        The device of each stage.
    chains : sequence of sequences of int
        The stages that a micro-batch passes, in order; each is in one chain.
    forward, backward, weight, paired, activation : number or sequence
        Of a stage, or of all; `paired` is the time of ``F&B``.
    hop : number
        Time of a transfer between different devices.
    transfers : {"delay", "link"}
        Any number under way, or one at a time per directed pair of devices.
    kept : number
        Share of the activation that is kept from B to W.
    """
    lists = [[[_read(part) for part in str(item).split("&")] for item in items] for items in lists]
    before = {stage: earlier for chain in chains for earlier, stage in zip([None, *chain[:-1]], chain, strict=True)}
    after = {stage: later for chain in chains for stage, later in zip(chain, [*chain[1:], None], strict=True)}
    times = {
        "F": _table(forward, place),
        "B": _table(backward, place),
        "W": _table(weight, place),
        "BW": [b + w for b, w in zip(_table(backward, place), _table(weight, place), strict=True)],
    }
    together = None if paired is None else _table(paired, place)
    intervals = _execute(lists, place, (before, after), (times, together), (hop, transfers))
    if intervals is None:
        return None
    first = [min((start for start, _ in found), default=0) for found in intervals]
    last = [max((end for _, end in found), default=0) for found in intervals]
    return Run(
        makespan=max(last),
        span=max(end - start for start, end in zip(first, last, strict=True)),
        busy=tuple(sum(end - start for start, end in found) for found in intervals),
        peak=tuple(
            _peak(items, found, _table(activation, place), kept) for items, found in zip(lists, intervals, strict=True)
        ),
        starts={
            f"{phase}{stage}.{batch}": start
            for items, found in zip(lists, intervals, strict=True)
            for item, (start, _) in zip(items, found, strict=True)
            for phase, stage, batch in item
        },
    )


def _read(text):
    name, batch = text.split(".")
    phase = name.rstrip("0123456789")
    return phase, int(name[len(phase) :]), int(batch)


def _table(value, place):
    return list(value) if hasattr(value, "__len__") else [value] * len(place)


def _needs(operation, before, after):
    """Return the prerequisites of an operation, local and remote, as (phase, stage, batch, where)."""
    phase, stage, batch = operation
    if phase == "F":
        return [] if before[stage] is None else [("F", before[stage], batch, "sent")]
    if phase == "W":
        return [("B", stage, batch, "made")]
    gradient = [] if after[stage] is None else [("B", after[stage], batch, "sent")]
    return [("F", stage, batch, "made"), *gradient]


def _execute(lists, place, neighbours, durations, hops):
    """Return (start, end) of each item of each list; None where somebody waits for ever."""
    before, after = neighbours
    times, together = durations
    hop, transfers = hops
    known, waiting, busy_until = {}, defaultdict(list), defaultdict(int)
    intervals = [[] for _ in lists]
    ready = deque(range(len(lists)))
    while ready:
        device = ready.popleft()
        while len(intervals[device]) < len(lists[device]):
            item = lists[device][len(intervals[device])]
            needs = [need for operation in item for need in _needs(operation, before, after)]
            missing = [need for need in needs if need not in known]
            if missing:
                waiting[missing[0]].append(device)
                break
            start = max([intervals[device][-1][1] if intervals[device] else 0, *(known[need] for need in needs)])
            if len(item) == 2 and together is not None:
                end = start + together[item[0][1]]
            else:
                end = start + sum(times[phase][stage] for phase, stage, _ in item)
            intervals[device].append((start, end))
            for phase, stage, batch in item:
                made = [(phase[0], stage, batch, "made")]
                known[made[0]] = end
                target = {"F": after, "B": before}.get(phase[0], {}).get(stage)
                if target is not None:
                    made.append((phase[0], stage, batch, "sent"))
                    known[made[1]] = _arrival(end, place[stage], place[target], hop, transfers, busy_until)
                for result in made:
                    ready.extend(waiting.pop(result, ()))
    if any(len(found) < len(items) for found, items in zip(intervals, lists, strict=True)):
        return None
    return intervals


def _arrival(end, source, target, hop, transfers, busy_until):
    if source == target:
        return end
    if transfers == "delay":
        return end + hop
    busy_until[source, target] = max(end, busy_until[source, target]) + hop
    return busy_until[source, target]


def _peak(items, intervals, activation, kept):
    """Return the largest sum of activations; a release counts before an acquisition at the same instant."""
    later = {(stage, batch) for item in items for phase, stage, batch in item if phase == "W"}
    changes = []
    for item, (start, end) in zip(items, intervals, strict=True):
        for phase, stage, batch in item:
            size = activation[stage]
            rest = size * kept if (stage, batch) in later else 0
            if phase == "F":
                changes.append((start, size))
            elif phase == "W":
                changes.append((end, -rest))
            else:
                changes.append((end, rest - size))
    level = peak = 0
    for _, change in sorted(changes):
        level += change
        peak = max(peak, level)
    return peak
