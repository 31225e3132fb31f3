"""Copies moved between runs: valid, within the capacities, and as programs of the peak that the verifier measures."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import remat
from remat.errors import OptionError
from remat.placement import Unplaceable, place
from remat.plugin.emit import run_in_order
from remat.schedule.steps import StepBuilder
from remat.solving.host_order.moving import Moved, move
from remat.solving.host_order.program import Copy, Program, Run, Wait
from remat.solving.verifying import examine

BOTH = (("device", "host"), ("host", "device"))


def machine_of(bandwidth: int, device: int | None = None, host: int | None = None, **link: Any) -> dict[str, Any]:
    memories = [{"name": "device", "capacity": device}, {"name": "host", "capacity": host}]
    links = [{"source": one, "target": two, "bandwidth": bandwidth, **link} for one, two in BOTH]
    return {
        "memories": [{key: value for key, value in memory.items() if value is not None} for memory in memories],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": links,
    }


def checked(result: remat.Result) -> Moved:
    """Move a schedule, and check all that holds for any."""
    moved = move(result)
    program, found = moved.program, moved.result
    assert found.report is not None
    assert found.report.ok
    assert program.peak_memory() == found.peak_memory == books(program)
    for memory in found.machine.memories:
        assert memory.capacity is None or found.peak_memory[memory.name] <= memory.capacity
    assert [one.task for one in program.operations if isinstance(one, Run)] == in_order(result)
    assert in_order(found) == in_order(result)
    assert found.report.transferred == result.report.transferred
    assert moved.price == found.makespan - result.makespan
    assert moved.simulated == pytest.approx(found.makespan, rel=0.02)
    assert moved.simulated <= found.makespan * (1 + 1e-9)
    again = move(found)  # a second move changes nothing
    assert again.result.makespan <= found.makespan * (1 + 1e-9)
    return moved


def in_order(result: remat.Result) -> list[int]:
    assert result.columns is not None
    assert result.columns.start is not None
    listed = sorted(range(len(result.columns)), key=lambda step: (result.columns.start[step], step))
    return [int(result.columns.item[step]) for step in listed if result.columns.kind[step] == 0]


def books(program: Program) -> dict[str, int]:
    """Follow a program value by value, as an interpreter does, and return the peaks."""
    graph, machine = program.graph, program.machine
    names = [memory.name for memory in machine.memories]
    held = {(place.value, names.index(place.memory or names[0])): [1] for place in graph.inputs}
    waited: set[int] = set()
    peaks = [0] * len(names)

    def note(more: int = 0) -> None:
        for memory in range(len(names)):
            mine = sum(len(copies) * int(graph.size[value]) for (value, at), copies in held.items() if at == memory)
            mine += graph.static_bytes(machine, memory) + (more if memory == 0 else 0)
            peaks[memory] = max(peaks[memory], mine)

    touching: dict[tuple[int, int], set[int]] = {}

    def free(place: tuple[int, int]) -> None:
        """Bytes are free only after a wait for all copies that have read or written them."""
        assert touching.pop(place, set()) <= waited
        del held[place]
        ready.discard(place)

    note()
    ready = set(held)
    for index, one in enumerate(program.operations):
        match one:
            case Run():
                assert {(value, 0) for value in graph.reads[one.task].tolist()} <= ready
                written = graph.writes[one.task].tolist()
                for value in written:
                    assert touching.pop((value, 0), set()) <= waited
                    held.setdefault((value, 0), []).append(index)
                made = sum(int(graph.size[value]) for value in written)
                over = sum(int(graph.size[value]) for value in one.drop if value not in written)
                note(int(graph.workspace[one.task]) - (min(made, over) if graph.in_place[one.task] else 0))
                for value in graph.writes[one.task].tolist():
                    held[value, 0] = [index]
                    ready.add((value, 0))
                for value in one.drop:
                    free((value, 0))
            case Copy():
                assert (one.value, one.source) in held
                assert (one.value, one.target) not in held, "a memory holds one copy of a value"
                held[one.value, one.target] = [index]
                for memory in (one.source, one.target):
                    touching.setdefault((one.value, memory), set()).add(index)
                if one.target:
                    ready.add((one.value, one.target))
                note()
            case Wait():
                assert waited.isdisjoint(one.copies), "waits for a copy once"
                waited.update(one.copies)
                for copy in one.copies:
                    operation = program.operations[copy]
                    assert isinstance(operation, Copy)
                    assert copy < index
                    ready.add((operation.value, operation.target))
                for place in one.drop:
                    free(place)
    return dict(zip(names, peaks, strict=True))


SIZES = st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(0, 12), st.integers(0, 3))


def chain_of(sizes: list[tuple[int, int, int, int]], **more: Any) -> dict[str, Any]:
    stages = [
        {"forward_time": time, "backward_time": 2 * time, "output_size": out, "saved_size": saved}
        | {"backward_workspace": work}
        for time, out, saved, work in sizes
    ]
    return {"schema": "remat.instance/1", "kind": "chain", "input_size": 2, "stages": stages} | more


@settings(max_examples=10, deadline=None)
@given(
    st.lists(SIZES, min_size=2, max_size=9),
    st.sampled_from(["offload-greedy", "tflms", "superneurons"]),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([0.35, 0.5, 0.7]),
    st.booleans(),
)
def test_schedules_of_algorithms(sizes, algorithm, bandwidth, share, in_place):
    instance = chain_of(sizes, in_place=in_place)
    kept = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
    machine = machine_of(bandwidth)
    options = {"bound": False} if algorithm == "offload-greedy" else {}
    given = {"budget": {"device": int(share * kept)}, "algorithm": algorithm, "options": options}
    result = remat.solve(instance, machine=machine, **given)
    assume(result.columns is not None)
    checked(result)


def dag_of(draw: random.Random) -> dict[str, Any]:
    """Draw a task graph; some tasks have several outputs, some work in place."""
    count = draw.randint(3, 9)
    tasks: list[dict[str, Any]] = []
    values: list[dict[str, Any]] = [{"id": "v0", "size": draw.randint(0, 6)}]
    for index in range(count):
        writes = []
        for _ in range(draw.choice((1, 1, 2))):
            values.append({"id": f"v{len(values)}", "size": draw.randint(0, 9)})
            writes.append(values[-1]["id"])
        known = [value["id"] for value in values[: -len(writes)]]
        reads = draw.sample(known, min(len(known), draw.randint(1, 3)))
        task = {"id": f"t{index}", "time": draw.choice((0, 1, 2, 5)), "reads": reads, "writes": writes}
        task |= {"workspace": draw.randint(0, 4), "in_place": draw.random() < 0.3}
        tasks.append(task)
    outputs = [tasks[-1]["writes"][0]]
    return {
        "schema": "remat.instance/1", "kind": "dag", "values": values, "tasks": tasks, "inputs": ["v0"],
        "outputs": outputs,
    }  # fmt: skip


def drawn(seed: int) -> remat.Result | None:
    """Draw a graph, an order of runs with repeats, and copies wherever they are possible; place it."""
    draw = random.Random(seed)
    document = dag_of(draw)
    names = [task["id"] for task in document["tasks"]]
    runs = list(names)
    for _ in range(draw.randint(0, 3)):
        at = draw.randrange(1, len(runs) + 1)
        runs.insert(at, draw.choice(runs[:at]))
    machine = machine_of(draw.choice((1, 3)), latency=draw.choice((0, 1)))
    plain = remat.schedule_of(document, runs, machine=machine)
    graph, own = plain.graph, plain.machine
    order = run_in_order(graph, own, [graph.task(name) for name in runs])
    builder, away = StepBuilder(), set[int]()
    resident = {place.value for place in graph.inputs}
    for index in range(len(order)):
        task, drop = int(order.item[index]), set(order.drop[index].tolist())
        for value in sorted((away - resident) & set(graph.reads[task].tolist())):
            builder.copy(value, 1, 0, drop=draw.random() < 0.5)
            if builder.columns[5][-1]:
                away.discard(value)
            resident.add(value)
        stays = {value for value in drop if value in away and value not in resident}
        builder.run(task, drop=sorted(drop - stays))
        resident |= set(graph.writes[task].tolist())
        resident -= drop
        for value in sorted(away & set(graph.writes[task].tolist()) | (away & drop)):
            builder.drop([value], 1)
            away.discard(value)
        for value in sorted(resident):
            if value not in away and draw.random() < 0.25:
                gone = draw.random() < 0.7
                builder.copy(value, 0, 1, drop=gone)
                away.add(value)
                if gone:
                    resident.discard(value)
    for place_ in graph.outputs:
        if place_.value not in resident:
            builder.copy(place_.value, 1, 0)
    steps = builder.build()
    free = place(graph, own, steps)
    assert not isinstance(free, Unplaceable)
    whole = remat.verify(document, document_of(plain, steps.placed(free.start)), machine=machine)
    if not whole.ok:
        return None
    least = whole.peak_memory
    tight = machine_of(0, least["device"], least["host"])
    for memory, other in zip(machine["memories"], tight["memories"], strict=True):
        memory["capacity"] = other["capacity"]
    capacities = own.with_capacities(dict(least))
    outcome = place(graph, capacities, steps)
    chosen = free.start if isinstance(outcome, Unplaceable) else outcome.start
    return examine(document, document_of(replace(plain, machine=capacities), steps.placed(chosen))).as_result()


def document_of(result: remat.Result, steps: Any) -> dict[str, Any]:
    return replace(result, columns=steps).to_dict()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31 - 1))
def test_drawn_schedules_with_reruns_and_copies_in_tight_memories(seed):
    result = drawn(seed)
    assume(result is not None)
    assert result is not None
    checked(result)


def test_moving_has_a_price_where_bytes_change_hands_during_a_run():
    """Room 10; a run holds 4, X of 6 leaves meanwhile, and then Y of 6 arrives: no program does both during one run."""
    machine = machine_of(1, device=10)
    instance = {
        "schema": "remat.instance/1", "kind": "dag", "machine": machine,
        "inputs": [{"value": "X"}, {"value": "Y", "memory": "host"}],
        "values": [{"id": "X", "size": 6}, {"id": "Y", "size": 6}, {"id": "a", "size": 0}],
        "tasks": [
            {"id": "R", "time": 20, "reads": [], "writes": ["a"], "workspace": 4},
            {"id": "S", "time": 1, "reads": ["a", "Y"], "size": 0},
        ],
        "outputs": [{"value": "X", "memory": "host"}, "S"],
    }  # fmt: skip
    steps = [
        {"run": "R", "start": 0, "drop": []},
        {"copy": "X", "from": "device", "to": "host", "start": 0, "drop": True},
        {"copy": "Y", "from": "host", "to": "device", "start": 6},
        {"run": "S", "start": 20},
    ]
    result = examine(instance, {"schema": "remat.schedule/1", "steps": steps}).as_result()
    assert result.makespan == 21
    moved = checked(result)
    assert (moved.result.makespan, moved.price) == (27, 6)
    words = [next(iter(one)) for one in moved.program.to_document()]
    assert words == ["offload", "run", "wait", "reload", "wait", "run"]


def test_schedules_without_a_program_are_refused():
    instance = chain_of([(1, 2, 3, 0)] * 3)
    kept = remat.solve(instance, machine=machine_of(1), algorithm="keep-all")
    assert checked(kept).program.copies == 0
    nothing = remat.solve(instance, machine=machine_of(1), budget={"device": 1}, algorithm="offload-greedy")
    with pytest.raises(OptionError, match="there is no schedule of one processor to move: infeasible"):
        move(nothing)
    synchronous = remat.solve(instance, machine=machine_of(1, channel="gpu"), algorithm="keep-all")
    with pytest.raises(OptionError, match="the link from device to host is synchronous"):
        move(synchronous)
