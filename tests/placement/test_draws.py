"""Random step lists, placed and verified: legal in both judges' eyes, and where the oracle's placer puts them."""

import copy
import random
from collections import Counter

import numpy as np
import pytest

from remat.placement import Placement, Unplaceable, place
from remat.placement.list_scheduling import place_general
from remat.placement.place import _one_resource
from remat.placement.sequential import place_sequential
from tests.oracles import placer
from tests.placement.step_lists import working_memory, world_of
from tests.verifier.judges import Case, close, same_figures

LISTS = 10
FAST, ALL = range(2), range(40)  # chunks of 500 draws: 1,000 and 20,000 in all
WORLDS = 50


def timed(steps, starts):
    return [step | {"start": start} for step, start in zip(steps, starts.tolist(), strict=True)]


def place_and_judge(chunk):
    for seed in range(chunk * WORLDS, (chunk + 1) * WORLDS):
        world = world_of(seed, lists=LISTS)
        case = Case(world.document)
        for steps in world.lists:
            placed = place(case.graph, case.machine, case.columns(steps))
            assert isinstance(placed, Placement), (seed, placed)
            expected = placer.place(world.document, steps)
            assert not isinstance(expected, tuple), (seed, expected)
            starts = placed.start.tolist()
            scale = max(expected, default=0)
            assert all(close(*pair, scale) for pair in zip(starts, expected, strict=True)), (seed, starts, expected)
            assert starts == sorted(starts)
            schedule = timed(steps, placed.start)
            same_figures(case.verify(schedule), case.judge(schedule))


@pytest.mark.parametrize("chunk", FAST)
def test_placed_lists_are_legal(chunk):
    place_and_judge(chunk)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [chunk for chunk in ALL if chunk not in FAST])
def test_many_more_placed_lists_are_legal(chunk):
    place_and_judge(chunk)


def test_the_draws_contain_what_they_are_for():
    seen = Counter()
    for seed in range(60):
        world = world_of(seed, lists=LISTS)
        case = Case(world.document)
        in_place = {task["id"] for task in world.document["tasks"] if task.get("in_place")}
        seen["several memories"] += len(case.machine.memories) > 1
        seen["several processors"] += len(case.machine.processors) > 1
        channels = [link.channel for link in case.machine.links]
        seen["slower processors"] += any(processor.speed < 1 for processor in case.machine.processors)
        seen["half duplex"] += channels.count("bus") > 1
        seen["synchronous"] += any(name in case.machine.processor_index for name in channels)
        seen["static memory"] += case.graph.static_memory > 0
        seen["integer times"] += case.graph.exact_times
        seen["outputs"] += bool(case.graph.outputs)
        seen["required tasks"] += bool(case.graph.required.any())
        for steps in world.lists:
            report = case.verify(timed(steps, place(case.graph, case.machine, case.columns(steps)).start))
            length = report.end - report.start
            moves = [step for step in steps if "copy" in step]
            runs = [step for step in steps if "run" in step]
            seen["no length"] += bool((length == 0).any())
            seen["below the tolerance"] += bool(((length > 0) & (length < 1e-9 * report.makespan)).any())
            seen["overlapping"] += bool((report.start[1:] < report.end[:-1]).any())
            seen["part of a value"] += any("bytes" in step for step in moves)
            seen["moved away"] += any(step.get("drop") and "bytes" not in step for step in moves)
            seen["again"] += len({step["run"] for step in runs}) < len(runs)
            seen["in place"] += any(step["run"] in in_place and step.get("drop") for step in runs)
            seen["on several processors"] += any(len(step.get("on", [])) > 1 for step in runs)
            seen["after"] += any(step.get("after") for step in steps)
            waits = [resource for resource, idle in report.idle.items() if 0 < idle < report.makespan]
            seen["waiting"] += bool(waits)
    assert all(count >= 5 for count in seen.values()), seen
    assert len(seen) == 19


def tighten(chance, document):
    """Shrink capacities so that many lists no longer fit, but the initial values still do."""
    document = copy.deepcopy(document)
    size = {value["id"]: value["size"] for value in document["values"]}
    working = working_memory(document)
    for memory in document["machine"]["memories"]:
        resident = document.get("static_memory", 0) if memory["name"] == working else 0
        for entry in document["inputs"]:
            value, where = (entry, working) if isinstance(entry, str) else entry.values()
            resident += size[value] if where == memory["name"] else 0
        if chance.random() < 0.6:
            memory["capacity"] = resident + chance.randint(0, 4)
    return document


@pytest.mark.parametrize("chunk", range(4))
def test_what_does_not_fit_is_named(chunk):
    """The first step that never fits is the oracle's; placed steps respect the capacities."""
    chance = random.Random(f"tight {chunk}")
    outcomes = Counter()
    for seed in range(25):
        world = world_of((chunk, seed), lists=4)
        case = Case(tighten(chance, world.document))
        for steps in world.lists:
            placed = place(case.graph, case.machine, case.columns(steps))
            expected = placer.place(case.document, steps)
            outcomes[type(placed)] += 1
            if isinstance(placed, Unplaceable):
                assert expected == ("infeasible", placed.step)
                memory = case.machine.memories[placed.memory]
                assert placed.needed > placed.capacity == memory.capacity
            else:
                assert all(close(*pair, max(expected)) for pair in zip(placed.start.tolist(), expected, strict=True))
                report = case.verify(timed(steps, placed.start))
                assert not [violation for violation in report.violations if violation.rule == "capacity"]
    assert outcomes[Unplaceable] > 10
    assert outcomes[Placement] > 10


@pytest.mark.parametrize("chunk", [0, 1, *(pytest.param(chunk, marks=pytest.mark.slow) for chunk in (2, 3))])
def test_the_short_cut_places_as_the_general_way(chunk):
    chance = random.Random(f"sequential {chunk}")
    outcomes = Counter()
    for seed in range(40):
        world = world_of((chunk, seed), lists=6, sequential=True)
        for document in (world.document, tighten(chance, world.document)):
            case = Case(document)
            for steps in world.lists:
                columns = case.columns(steps)
                assert _one_resource(case.machine, columns)
                quick = place_sequential(case.graph, case.machine, columns)
                general = place_general(case.graph, case.machine, columns)
                outcomes[type(quick)] += 1
                if isinstance(general, Unplaceable):
                    assert quick == general
                else:
                    assert np.array_equal(quick.start, general.start)
    assert outcomes[Unplaceable] > 20
    assert outcomes[Placement] > 20
