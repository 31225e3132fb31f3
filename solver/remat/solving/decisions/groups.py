"""Decisions grouped by stages, steps, layers and micro-batches, or else by values."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remat.instance.kinds import is_pipeline
from remat.schedule.steps import StepKind
from remat.solving.decisions.values import KEPT, OFFLOADED, RECOMPUTED, UNUSED, Decision, Stay, times_but_last
from remat.units import Number

if TYPE_CHECKING:
    from remat.solving.result import Result

NUMBERED = re.compile(r"([a-z]+)([0-9]+)(?:\.([0-9]+))?")
"""A value of a stage, step or layer: ``x7``; also with a branch prefix, or a variant or micro-batch suffix."""

ROLES = {
    "x": "outputs",
    "s": "saved values",
    "y": "output gradients",
    "w": "parameters",
    "nw": "new parameters",
    "p": "new parameters",
    "f": "gathered parameters",
    "g": "gradients",
    "r": "gradients",
    "b": "gradients",
    "o": "optimizer states",
    "no": "new optimizer states",
}
"""Role of a stage's value, by the first letters of its name."""


CHOSEN = "chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Values of one kind with one decision.

    Attributes
    ----------
    decision : str
        ``kept``, ``recomputed``, ``offloaded`` or ``chosen``, of variants.
    values : tuple of str
    size : int
        Bytes of these values, each once.
    unit : str
        ``stages``, ``steps`` or ``layers``; empty for values that have no such number.
    numbers : tuple of int
        Numbers of the units, ascending.
    role : str
        Role of the values in their stages, if the group covers only part of a stage.
    memory : str
        The memory that holds them while offloaded.
    held_at : str
        When this memory must hold them: ``start`` (initially), ``end`` (at the end) or ``both``; empty if never.
    at_once, bytes_at_once : int
        Maximum number and bytes of the values in this memory at once.
    time : int or float
        For recomputation: the time beyond the first runs.
    runs : int
        For recomputation: runs beyond the first ones.
    most_runs : int
        For recomputation: the largest number of runs of one unit.
    of : str
        The branch, or the stage and device, of the group.
    batches : tuple of int
        The micro-batches, from 0; empty for other kinds.
    """

    decision: str
    values: tuple[str, ...]
    size: int
    unit: str = ""
    numbers: tuple[int, ...] = ()
    role: str = ""
    memory: str = ""
    held_at: str = ""
    at_once: int = 0
    bytes_at_once: int = 0
    time: Number = 0
    runs: int = 0
    most_runs: int = 0
    of: str = ""
    batches: tuple[int, ...] = ()

    @property
    def home(self) -> bool:
        """Whether this memory holds the values initially, or must hold them at the end."""
        return self.held_at != ""


def groups_of(result: Result) -> tuple[Group, ...]:
    """Return the decisions of a result in groups, recomputation first; empty without a schedule."""
    rows = [row for row in result.decisions if row.decision != UNUSED]
    instance = result.instance
    if not rows:
        return ()
    if instance is not None and result.pattern is None:
        if instance.is_chain or instance.kind == "join":
            unit = "steps" if instance.kind == "adjoint" else "stages"
            return tuple(_of_stages(result, rows, unit, branched=instance.kind == "join"))
        if is_pipeline(instance):
            return tuple(_of_layers(result, rows))
    return tuple(_of_values(result, rows))


@dataclass(frozen=True, slots=True)
class _Place:
    """Parsed name: the letters and the two numbers."""

    letters: str
    first: int
    second: int | None


def _place(name: str) -> _Place | None:
    found = NUMBERED.fullmatch(name)
    return None if found is None else _Place(found[1], int(found[2]), None if found[3] is None else int(found[3]))


def _waiting(result: Result, rows: Sequence[Decision]) -> Iterator[tuple[Decision, str, str, list[Stay]]]:
    """Yield, for each offloaded value and memory, when the memory must hold it (see `Group.held_at`), and its stays."""
    graph, machine, end = result.graph, result.machine, result.report.makespan if result.report else 0
    first = machine.memories[0].name
    inputs = {(graph.values[place.value], place.memory or first) for place in graph.inputs}
    outputs = {(graph.values[place.value], place.memory or first) for place in graph.outputs}
    for row in rows:
        for memory in dict.fromkeys(stay.memory for stay in row.offloaded):
            stays = [stay for stay in row.offloaded if stay.memory == memory]
            found: dict[str, list[Stay]] = defaultdict(list)
            for stay in stays:
                starts = (row.value, memory) in inputs and stay.start == 0
                ends = (row.value, memory) in outputs and stay.end == end
                found["both" if starts and ends else "start" if starts else "end" if ends else ""].append(stay)
            for held_at in ("both", "start", "end", ""):
                if found[held_at]:
                    yield row, memory, held_at, found[held_at]


def homes_of(result: Result) -> dict[str, str]:
    """Return the memory in which each value waits only because it is an input or an output there.

    A value that a schedule also offloads by choice is not listed, nor one with such memories before and after.
    """
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for row, memory, held_at, _ in _waiting(result, [row for row in result.decisions if row.decision == OFFLOADED]):
        found[row.value][memory] = found[row.value].get(memory, True) and held_at != ""
    return {value: next(iter(known)) for value, known in found.items() if len(known) == 1 and all(known.values())}


def _of_stages(result: Result, rows: Sequence[Decision], unit: str, *, branched: bool) -> Iterator[Group]:
    """Group the values of a chain, an adjoint or the branches of a join by stages."""

    def split(place: _Place) -> tuple[int, int]:
        return (place.first, place.second or 0) if branched else (0, place.first)

    again: dict[int, dict[int, list[Decision]]] = defaultdict(lambda: defaultdict(list))
    kept: dict[int, dict[int, list[Decision]]] = defaultdict(lambda: defaultdict(list))
    variants: dict[int, list[tuple[int, Decision]]] = defaultdict(list)
    for row in rows:
        place = _place(row.value)
        if place is None or place.letters not in ("x", "s"):
            continue
        branch, stage = split(place)
        if stage > 0:
            (again if row.runs > 1 else kept)[branch][stage].append(row)
        if place.letters == "s" and place.second is not None and not branched and row.runs:
            variants[place.second].append((stage, row))
    times = times_but_last(result) if again else {}
    for branch in sorted({*again, *kept}):
        of = f"chain {branch}" if branched else ""
        if branch in again:
            yield _recomputed(again[branch], times, unit, of)
        left = {stage: listed for stage, listed in kept[branch].items() if stage not in again[branch]}
        left = {stage: listed for stage, listed in left.items() if not any(row.offloaded for row in listed)}
        if left and unit == "stages":
            values = [row for listed in left.values() for row in listed if row.readers]
            yield _group(KEPT, values, unit=unit, numbers=tuple(sorted(left)), of=of)
    away: dict[tuple[str, str, int, str], list[tuple[int, Decision, list[Stay]]]] = defaultdict(list)
    for row, memory, held_at, stays in _waiting(result, rows):
        place = _place(row.value)
        if place is not None and (role := ROLES.get(place.letters)):
            branch, stage = split(place)
            away[memory, "states" if (unit, role) == ("steps", "outputs") else role, branch, held_at].append(
                (stage, row, stays)
            )
    for (memory, role, branch, held_at), members in away.items():
        yield _away(
            result,
            [row for _, row, _ in members],
            {row.value: stays for _, row, stays in members},
            unit=unit,
            numbers=tuple(sorted({stage for stage, _, _ in members})),
            role=role,
            memory=memory,
            held_at=held_at,
            of=f"chain {branch}" if branched else "",
        )
    for variant, chosen in sorted(variants.items()):
        yield _group(
            CHOSEN,
            [row for _, row in chosen],
            unit=unit,
            numbers=tuple(sorted(stage for stage, _ in chosen)),
            role=f"variant {variant}",
        )


def _group(decision: str, rows: Iterable[Decision], *, size: int | None = None, **more: Any) -> Group:
    listed = [*rows]
    values = tuple(row.value for row in listed)
    return Group(
        decision=decision, values=values, size=sum(row.size for row in listed) if size is None else size, **more
    )


def _away(result: Result, rows: Iterable[Decision], stays: Mapping[str, Sequence[Stay]], **more: Any) -> Group:
    """Return the group of offloaded values, each with its stays.

    At one instant, stays end before others begin; what is there at the end of the schedule, or for an instant only,
    counts with what begins then.
    """
    listed, makespan = [*rows], result.report.makespan if result.report else 0
    events = sorted(
        event
        for row in listed
        for stay in stays[row.value]
        for event in (
            (stay.start, 1, 1, stay.size),
            (stay.end, 2 if stay.end == makespan or stay.start == stay.end else 0, -1, -stay.size),
        )
    )
    most = now = bytes_now = bytes_most = 0
    for _, _, change, size in events:
        now, bytes_now = now + change, bytes_now + size
        most, bytes_most = max(most, now), max(bytes_most, bytes_now)
    size = sum(max(stay.size for stay in stays[row.value]) for row in listed)
    return _group(OFFLOADED, listed, size=size, at_once=most, bytes_at_once=bytes_most, **more)


def _recomputed(stages: Mapping[int, list[Decision]], times: Mapping[str, Number], unit: str, of: str) -> Group:
    """Return the group of recomputed stages; the outputs of one run count once."""
    longest = [max(rows, key=lambda row: row.runs) for rows in stages.values()]
    return _group(
        RECOMPUTED,
        [row for rows in stages.values() for row in rows],
        unit=unit,
        numbers=tuple(sorted(stages)),
        time=sum(max(times.get(row.value, 0) for row in rows) for rows in stages.values()),
        runs=sum(row.runs - 1 for row in longest),
        most_runs=max(row.runs for row in longest),
        of=of,
    )


def _of_layers(result: Result, rows: Sequence[Decision]) -> Iterator[Group]:
    """Group the layers of a pipeline by stage, and micro-batches with the same decisions together."""
    homes = _homes(result)

    def home_of(layer: int, batch: int | None) -> str:
        return homes.get((layer, batch or 0)) or homes.get((layer, 0), "")

    again: dict[tuple[str, int, str], dict[int, list[Decision]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        place = _place(row.value)
        if place is not None and place.letters in ("x", "s") and place.second is not None and row.runs > 1:
            again[home_of(place.first, place.second), place.second, ""][place.first].append(row)
    away: dict[tuple[str, int, str], dict[int, list[Decision]]] = defaultdict(lambda: defaultdict(list))
    lasting: dict[tuple[str, str, str, str], list[tuple[int, Decision, list[Stay]]]] = defaultdict(list)
    for row, memory, held_at, stays in _waiting(result, rows):
        place = _place(row.value)
        if place is None or place.letters not in ROLES:
            continue
        home = home_of(place.first, place.second)
        if place.second is None:
            lasting[home, ROLES[place.letters], memory, held_at].append((place.first, row, stays))
        else:
            away[home, place.second, memory][place.first].append(row)
    order = {home: number for number, home in enumerate(dict.fromkeys(homes.values()))}
    yield from _alike(RECOMPUTED, again, order, times_but_last(result) if again else {})
    yield from _alike(OFFLOADED, away, order, {})
    for (home, role, memory, held_at), members in lasting.items():
        yield _away(
            result,
            [row for _, row, _ in members],
            {row.value: stays for _, row, stays in members},
            unit="layers",
            numbers=tuple(sorted({layer for layer, _, _ in members})),
            role=role,
            memory=memory,
            held_at=held_at,
            of=home,
        )


def _alike(
    decision: str,
    found: Mapping[tuple[str, int, str], Mapping[int, list[Decision]]],
    order: Mapping[str, int],
    times: Mapping[str, Number],
) -> Iterator[Group]:
    """Yield a group for micro-batches of a stage with the same decisions for the same layers."""
    alike: dict[tuple[str, str, tuple[int, ...]], list[int]] = defaultdict(list)
    for (home, batch, memory), layers in found.items():
        alike[home, memory, tuple(sorted(layers))].append(batch)
    for (home, memory, numbers), batches in sorted(
        alike.items(), key=lambda item: (order.get(item[0][0], -1), min(item[1]), item[0][1])
    ):
        members = [rows for batch in batches for rows in found[home, batch, memory].values()]
        once = [max(rows, key=lambda row: row.runs) for rows in members]
        again = decision == RECOMPUTED
        yield _group(
            decision,
            [row for rows in members for row in rows],
            unit="layers",
            numbers=numbers,
            memory=memory,
            of=home,
            batches=tuple(sorted(batches)),
            time=sum(max(times.get(row.value, 0) for row in rows) for rows in members) if again else 0,
            runs=sum(row.runs - 1 for row in once) if again else 0,
            most_runs=max(row.runs for row in once) if again else 0,
        )


def _homes(result: Result) -> dict[tuple[int, int], str]:
    """Return the stage, or the device, at which each layer of each micro-batch runs forward first."""
    steps, machine = result.columns, result.machine
    found: dict[tuple[int, int], str] = {}
    if steps is None:
        return found
    stages = {} if result.orders is None else _stages_by_place(result)
    for index, (kind, item) in enumerate(zip(steps.kind.tolist(), steps.item.tolist(), strict=True)):
        name = str(result.graph.tasks[item]) if kind == StepKind.RUN else ""
        place = _place(name[:1].lower() + name[2:]) if name.startswith("Fe") else None
        if place is None:
            continue
        row = [] if steps.on is None else steps.on[index].tolist()
        device = row[0] if row else 0
        home = stages.get((place.first, device)) or machine.processors[device].name
        found.setdefault((place.first, place.second or 0), home)
    return found


def _stages_by_place(result: Result) -> dict[tuple[int, int], str]:
    """Name the stage of each layer on each device."""
    assert result.orders is not None
    found: dict[tuple[int, int], str] = {}
    for number, stage in enumerate(result.orders.stages):
        for layer in stage.layers:
            name = result.machine.processors[stage.device].name
            found.setdefault((layer + 1, stage.device), f"stage {number} ({name})")
    return found


def _of_values(result: Result, rows: Sequence[Decision]) -> Iterator[Group]:
    """Group the values of a graph by decision, and by where they wait, the largest first."""

    def by_size(listed: Iterable[Decision]) -> list[Decision]:
        return sorted(listed, key=lambda row: (-row.size, row.value))

    again = by_size(row for row in rows if row.runs > 1)
    if again:
        runs = sum(row.runs - 1 for row in again)
        yield _group(RECOMPUTED, again, runs=runs, most_runs=max(row.runs for row in again))
    away: dict[tuple[str, str], list[tuple[Decision, list[Stay]]]] = defaultdict(list)
    for row, memory, held_at, stays in _waiting(result, rows):
        away[memory, held_at].append((row, stays))
    for (memory, held_at), members in away.items():
        stays_of = {row.value: stays for row, stays in members}
        yield _away(result, by_size(row for row, _ in members), stays_of, memory=memory, held_at=held_at)
    kept = by_size(row for row in rows if row.decision == KEPT)
    if kept:
        yield _group(KEPT, kept)
