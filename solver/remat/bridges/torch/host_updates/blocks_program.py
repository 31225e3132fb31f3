"""Schedules of chains with parameters at a host, as host-ordered programs of their device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.transfers import DEVICE, HOST
from remat.instance import load
from remat.schedule.chain_steps import Forget, Stage, check_steps, read_step
from remat.solving.host_order.moving import move
from remat.solving.host_order.program import Copy, Program, Run, Wait
from remat.solving.result import Result
from remat.solving.verifying import examine

RUNS = re.compile(r"(Fe|F|B)[1-9]\d*|loss")


@dataclass(frozen=True, slots=True)
class Move:
    """Parameters of a block that come, or their gradients that leave; stages count from 1."""

    kind: str
    stage: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A point after which copies have ended, and these values are freed: w for parameters, g for gradients."""

    moves: tuple[Move, ...]
    drop: tuple[tuple[str, int], ...]


Event = Stage | Forget | Move | Ready


def has_parameters(schedule: Any) -> bool:
    """Whether a schedule moves parameters of a chain."""
    return isinstance(schedule, Result) and any(name.startswith("w") for name in schedule.graph.values)


def program_of(result: Result) -> Program:
    """Return the operations of the device, verified separately from the updates.

    Raises
    ------
    TorchError
        If the schedule does anything else than to move parameters and their gradients, or updates on the device.
    """
    document = _instance(result)
    steps = list(_steps(result, {value["id"] for value in document["values"]}))
    examined = examine(load(document), {"schema": "remat.schedule/1", "steps": steps})
    return move(examined.as_result()).program


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
        "machine": _machine(result),
    }


def _machine(result: Result) -> dict[str, Any]:
    """Return the device with its links; gradients stay at the host here, so that its capacity is that of the plan."""
    machine = result.machine
    device, *others = machine.memories
    open_hosts = (replace(memory, capacity=None, static=0) for memory in others)
    alone = replace(machine, memories=(device, *open_hosts), processors=machine.processors[:1])
    return alone.to_document()


def _steps(result: Result, known: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the steps of the device; parameters stay at the host."""
    device = result.machine.processors[0].name
    for listed in result.to_dict()["steps"]:
        step = dict(listed)
        on = step.pop("on", [device])
        if "run" in step:
            updates = step["run"].startswith("U")
            if updates == (on == [device]):
                what = "updates" if updates else "runs blocks"
                raise TorchError(f"the schedule {what} {'on the device' if updates else 'at the host'}; apply does not")
            if updates:
                continue
        if "copy" in step:
            kind = step["copy"].rstrip("0123456789")
            if step["copy"] not in known and kind != "nw":
                raise TorchError(f"the schedule copies {step['copy']}; apply moves parameters and their gradients")
            if kind not in ("w", "g") or (kind == "g") == (step["to"] == DEVICE):
                raise TorchError(f"the schedule copies {step['copy']} to {step['to']}; apply does not")
            yield {**step, "drop": bool(step.get("drop")) and kind == "g"}
            continue
        drop = [value for value in step.get("drop", ()) if value in known]
        if "run" not in step:
            if step.get("memory", DEVICE) == DEVICE and drop:
                yield {**step, "drop": drop}
            continue
        yield {**step, "drop": drop}


def events_of(program: Program, length: int) -> list[Event]:
    """Return what blocks follow: runs, drops, and moves with their ends."""
    graph = program.graph
    values, tasks = graph.values, graph.tasks

    def moved(copy: int) -> Move:
        one = program.operations[copy]
        assert isinstance(one, Copy)
        return Move(*_split(values[one.value]))

    found: list[Event] = []
    for one in program.operations:
        match one:
            case Run():
                names = [values[value] for value in one.drop]
                own, others = _apart(names)
                found.append(read_step({"run": tasks[one.task], "drop": own}, length))
                if others:
                    found.append(Ready((), others))
            case Copy():
                found.append(Move(*_split(values[one.value])))
            case Wait():
                own, others = _apart([values[value] for value, memory in one.drop if memory == 0])
                found.append(Ready(tuple(moved(copy) for copy in one.copies), others))
                if own:
                    found.append(read_step({"drop": own}, length))
    check_steps([event for event in found if isinstance(event, (Stage, Forget))], length)
    return found


def _split(name: str) -> tuple[str, int]:
    return name[0], int(name[1:])


def _apart(names: Iterable[str]) -> tuple[list[str], tuple[tuple[str, int], ...]]:
    """Return the values that are activations and the like, and the others."""
    listed = list(names)
    own = [name for name in listed if name[0] in "xsy"]
    return own, tuple(_split(name) for name in listed if name not in own)


__all__ = ["Event", "Move", "Ready", "events_of", "has_parameters", "program_of"]
