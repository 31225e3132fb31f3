"""Schedules of chains with parameters at a host, as host-ordered programs of their device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.transfers import DEVICE, HOST
from remat.instance import load
from remat.schedule.chain_steps import Back, Forget, Stage, check_steps, read_step
from remat.solving.host_order.moving import move
from remat.solving.host_order.program import Copy, Program, Run, Wait
from remat.solving.result import Result
from remat.solving.verifying import examine

_ONE_WAY = ("w", "g")
"""Values that only come, and that only leave."""
RUNS = re.compile(r"(Fe|F|B)[1-9]\d*|loss")


@dataclass(frozen=True, slots=True)
class Move:
    """A copy to the device, or to the host (`leaves`).

    The kind is w for parameters of a block, g for their gradients, x for its result, and s for its saved tensors.
    Stages count from 1.
    """

    kind: str
    stage: int
    leaves: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """A point after which copies have ended, and values are freed: on the device, and at the host."""

    moves: tuple[Move, ...]
    drop: tuple[tuple[str, int], ...]
    drop_at_host: tuple[tuple[str, int], ...] = ()


Event = Stage | Forget | Move | Ready


def has_parameters(schedule: Any) -> bool:
    """Whether a schedule moves parameters of a chain."""
    return isinstance(schedule, Result) and any(name.startswith("w") for name in schedule.graph.values)


def program_of(result: Result) -> Program:
    """Return the operations of the device, verified separately from the updates.

    Raises
    ------
    TorchError
        If the schedule updates on the device, runs blocks at the host, or moves gradients of activations.
    """
    document = _instance(result)
    steps = list(_steps(result, {value["id"] for value in document["values"]}))
    schedule = {"schema": "remat.schedule/1", "steps": steps}
    device = result.machine.memories[0].name
    peak = examine(load(document), schedule).as_result().peak_memory[device]
    document["machine"] = _machine(result, peak)
    return move(examine(load(document), schedule).as_result()).program


def _instance(result: Result) -> dict[str, Any]:
    """Return the part of the device as a task graph, in which no forward writes over parameters."""
    graph = result.graph
    names, sizes = list(graph.values), graph.size.tolist()
    size = dict(zip(names, sizes, strict=True))
    reads = [[names[value] for value in row] for row in graph.reads.to_lists()]
    tasks: list[dict[str, Any]] = []
    for index, name in enumerate(graph.tasks):
        if not RUNS.fullmatch(name):
            continue
        writes = [names[value] for value in graph.writes[index].tolist()]
        workspace, in_place = int(graph.workspace[index]), bool(graph.in_place[index])
        if name.startswith("F") and any(value.startswith("w") for value in reads[index]):
            in_place = False  # a forward writes over nothing, and a backward's workspace allows for its parameters
            workspace -= 0 if name.startswith("Fe") else sum(size[value] for value in writes)
        tasks.append(
            {
                "id": name,
                "time": graph.time[index].item(),
                "reads": reads[index],
                "writes": writes,
                "workspace": max(0, workspace),
                "in_place": in_place,
                **({} if name.startswith("B") or name == "loss" else {"required": False}),
            }
        )
    used = {value for task in tasks for value in (*task["reads"], *task["writes"])}
    places = {(names[place.value], place.memory or DEVICE) for place in graph.inputs}
    ends = {(names[place.value], place.memory or DEVICE) for place in graph.outputs}
    gradients = {(name, HOST) for name in used if name.startswith("g")}
    return {
        "schema": "remat.instance/3",
        "kind": "dag",
        "units": {"time": "us", "memory": "B"},
        "static_memory": graph.static_memory,
        "values": [{"id": name, "size": size[name]} for name in names if name in used],
        "tasks": tasks,
        "inputs": [{"value": name, "memory": memory} for name, memory in sorted(places) if name in used],
        "outputs": [{"value": n, "memory": m} for n, m in sorted(ends | gradients) if n in used],
        "machine": _machine(result, result.machine.memories[0].capacity),
    }


def _machine(result: Result, capacity: int | None) -> dict[str, Any]:
    """Return the device with its links; gradients stay at an unbounded host here."""
    machine = result.machine
    device, *others = machine.memories
    device = replace(device, capacity=capacity)
    open_hosts = (replace(memory, capacity=None, static=0) for memory in others)
    alone = replace(machine, memories=(device, *open_hosts), processors=machine.processors[:1])
    return alone.to_document()


def _refusal(what: str) -> str:
    return f"the schedule {what}; apply does not, but runs those of l2l and zero-infinity, which update at the host"


def _steps(result: Result, known: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the steps of the device; parameters stay at the host."""
    device = result.machine.processors[0].name
    for listed in result.to_dict()["steps"]:
        step = dict(listed)
        on = step.pop("on", [device])
        if "run" in step:
            updates = step["run"].startswith("U")
            if updates == (on == [device]):
                raise TorchError(_refusal("updates on the device" if updates else "runs blocks at the host"))
            if updates:
                continue
        if "copy" in step:
            kind = step["copy"].rstrip("0123456789")
            if kind in ("o", "no", "nw"):
                raise TorchError(_refusal("updates on the device"))
            if kind not in "wgxs" or (kind in _ONE_WAY and (kind == "g") == (step["to"] == DEVICE)):
                raise TorchError(f"the schedule copies {step['copy']} to {step['to']}; apply does not")
            yield {**step, "drop": bool(step.get("drop")) and kind != "w"}
            continue
        is_here = step.get("memory", DEVICE) == DEVICE
        drop = [name for name in step.get("drop", ()) if name in known and (is_here or name[0] not in _ONE_WAY)]
        if "run" in step or drop:
            yield {**step, "drop": drop}


def events_of(program: Program, length: int) -> list[Event]:
    """Return the events that the blocks follow: runs, drops, and moves with their ends."""
    graph = program.graph
    values, tasks = graph.values, graph.tasks
    fixed = {values[value] for value in _copied(program) if not graph.size[value]}

    def moves(copies: Iterable[int]) -> tuple[Move, ...]:
        listed = [one for one in (program.operations[copy] for copy in copies) if isinstance(one, Copy)]
        return tuple(
            Move(*_split(values[one.value]), leaves=one.source == 0) for one in listed if values[one.value] not in fixed
        )

    found: list[Event] = []
    for index, one in enumerate(program.operations):
        match one:
            case Run():
                own, others = _apart(values[value] for value in one.drop if values[value] not in fixed)
                found.append(read_step({"run": tasks[one.task], "drop": own}, length))
                if others:
                    found.append(Ready((), others))
            case Copy():
                found += moves([index])
            case Wait():
                freed = [(values[value], memory) for value, memory in one.drop if values[value] not in fixed]
                own, others = _apart(name for name, memory in freed if memory == 0)
                away = tuple(_split(name) for name, memory in freed if memory)
                found.append(Ready(moves(one.copies), others, away))
                if own:
                    found.append(read_step({"drop": own}, length))
    _check(found, length)
    return found


def moves_activations(program: Program) -> bool:
    """Whether a program moves anything but parameters and their gradients."""
    return any(program.graph.values[value][0] not in _ONE_WAY for value in _copied(program))


def _copied(program: Program) -> set[int]:
    return {one.value for one in program.operations if isinstance(one, Copy)}


def _check(events: Iterable[Event], length: int) -> None:
    """Refuse runs whose inputs are absent; a value that is being copied counts as present."""
    seen: list[Stage | Forget | Back] = []
    apart = False
    for event in events:
        if isinstance(event, (Stage, Forget)):
            seen.append(event)
        elif isinstance(event, Move) and event.kind in ("x", "s"):
            apart = True
            if not event.leaves:
                seen.append(Back((event.kind, event.stage)))  # type: ignore[arg-type]
    check_steps(seen, length, apart=apart)


def _split(name: str) -> tuple[str, int]:
    return name[0], int(name[1:])


def _apart(names: Iterable[str]) -> tuple[list[str], tuple[tuple[str, int], ...]]:
    """Return the values that are activations and the like, and the others."""
    listed = list(names)
    own = [name for name in listed if name[0] in "xsy"]
    return own, tuple(_split(name) for name in listed if name not in own)


__all__ = ["Event", "Move", "Ready", "events_of", "has_parameters", "moves_activations", "program_of"]
