"""Conversion of a solution of `offload-exact`'s program to steps with start times."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from remat.plugin import Number, StepBuilder, Steps, instant_array
from remat_algorithms.offload.exact.decision_space import Plan, Setting
from remat_algorithms.offload.exact.integer_scaling import Scale


@dataclass(frozen=True, slots=True)
class Timed:
    """Steps with start times, and the end of the last one."""

    steps: Steps
    makespan: Number


@dataclass(slots=True)
class _Entry:
    """A future step: its start, its rank among those that start at one tick, its act, and the slots that it frees."""

    tick: int
    place: int
    act: int
    drops: list[int] = field(default_factory=list)


_DROP, _INSTANT_COPY, _OTHER = range(3)


def timed_steps(setting: Setting, scale: Scale, length: list[int], plan: Plan) -> Timed:
    """Build the steps of a plan without its useless acts; each value is freed after its last use.

    Parameters
    ----------
    setting, scale
    length : list of int
        Ticks of each act.
    plan : Plan

    Notes
    -----
    Frees at the end of a run or copy take effect before anything starts at that instant; a drop takes its place in the
    list. If all steps take time and nothing is rounded, both are equivalent. Otherwise, a run frees only the slots that
    it takes over in place.
    """
    acts = _useful(setting, plan)
    plain = scale.exact and scale.ticks == 1
    last = max((plan.start[act] for act in acts), default=0)
    frees = _frees(setting, length, plan, acts)
    entries = {
        act: _Entry(plan.start[act], _INSTANT_COPY if _instant_copy(setting, scale, length, act) else _OTHER, act)
        for act in acts
    }
    drops: dict[tuple[int, int], list[int]] = {}
    ended: dict[int, list[int]] = {}
    for act in sorted(acts):  # runs first
        ended.setdefault(plan.start[act] + length[act], []).append(act)
    for slot, tick in frees.items():
        value, memory = setting.slots[slot].value, setting.slots[slot].memory
        own = next((act for act in acts if (act, slot) in plan.taken), None)
        if own is None and plain:
            users = ended.get(tick, ())
            own = next((act for act in users if slot in plan.reads[act] or _writes(setting, act, slot)), None)
        if own is not None:
            entries[own].drops.append(value)
        elif scale.exact or tick <= last:
            drops.setdefault((tick, memory), []).append(value)
    return _build(setting, scale, list(entries.values()), drops)


def _useful(setting: Setting, plan: Plan) -> list[int]:
    """Return the mandatory acts and those whose results another useful act uses."""
    kept = set(plan.start)
    while True:
        used = plan.stays | {slot for act in kept for slot in plan.reads[act]}
        makers = {setting.slots[slot].maker for slot in used}
        needed = {act for act in kept if setting.acts[act].must or act in makers}
        if needed == kept:
            return sorted(kept, key=lambda act: (plan.start[act], act))
        kept = needed


def _frees(setting: Setting, length: list[int], plan: Plan, acts: list[int]) -> dict[int, int]:
    """Return the tick at which each slot that does not stay is free."""
    until: dict[int, int] = {}
    happen = set(acts)
    for slot, entry in enumerate(setting.slots):
        key = entry.value, entry.memory
        if slot in plan.stays or (entry.maker < 0 and key in setting.pinned):
            continue
        if entry.maker < 0:
            until[slot] = 0
        elif entry.maker in happen:
            until[slot] = plan.start[entry.maker] + length[entry.maker]
    for act in acts:
        for slot in plan.reads[act]:
            if slot in until:
                until[slot] = max(until[slot], plan.start[act] + length[act])
    return until


def _instant_copy(setting: Setting, scale: Scale, length: list[int], act: int) -> bool:
    return act >= setting.runs and length[act] < scale.ticks


def _writes(setting: Setting, act: int, slot: int) -> bool:
    """Whether a run produces a slot (and may hence free it: a copy frees only the slot that it reads)."""
    return act < setting.runs and setting.slots[slot].maker == act


def _build(setting: Setting, scale: Scale, entries: list[_Entry], drops: dict[tuple[int, int], list[int]]) -> Timed:
    links = setting.problem.machine.links
    builder = StepBuilder()
    starts: list[Fraction] = []
    ends = [Fraction(0)]
    listed: list[tuple[int, int, int, _Entry | list[int]]] = [
        (tick, _DROP, memory, values) for (tick, memory), values in drops.items()
    ]
    listed += [(entry.tick, entry.place, entry.act, entry) for entry in entries]
    for tick, _, number, entry in sorted(listed, key=lambda item: item[:3]):
        starts.append(scale.time(tick))
        if isinstance(entry, list):
            builder.drop(entry, number)
            ends.append(starts[-1])
            continue
        act = setting.acts[entry.act]
        ends.append(starts[-1] + act.duration)
        if act.link < 0:
            builder.run(act.item, drop=entry.drops)
        else:
            ends_of = links[act.link]
            builder.copy(act.item, ends_of.source, ends_of.target, drop=bool(entry.drops))
    return Timed(builder.build(start=instant_array(map(_number, starts))), _number(max(ends)))


def _number(time: Fraction) -> Number:
    return int(time) if time.denominator == 1 else float(time)
