"""Kind `dag` with processors of several types, tied tasks, inputs to be placed and static bytes: before both judges."""

import copy
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.instance import load
from remat.instance.lowering import lower, machine_of
from remat.placement import place
from remat.schedule.document import parse_steps
from remat.testing.strategies import dags
from tests.oracles import placer, referee
from tests.verifier.device_plans import able, draw_plan, with_devices
from tests.verifier.judges import close, rules, same_figures

SEEDS = st.integers(0, 2**32 - 1)
DRAWN = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
DRAWS = dags(largest=4, exact=True)


def drawn(document, number):
    """Return the generator of randomness, an instance, and a plan with the starts that both placers find."""
    chance = random.Random(number)
    document = with_devices(chance, document)
    plan = draw_plan(chance, document)
    instance = load(document)
    machine = machine_of(instance)
    graph = lower(instance)
    starts = place(graph, machine, parse_steps(plan, graph, machine, instance.units.build())).start.tolist()
    scale = max(starts, default=0)
    assert all(close(*pair, scale) for pair in zip(starts, placer.place(document, plan["steps"]), strict=True))
    steps = [step | {"start": start} for step, start in zip(plan["steps"], starts, strict=True)]
    return chance, document, plan | {"steps": steps}


def judge(document, number):
    chance, document, plan = drawn(document, number)
    report = remat.verify(document, plan)
    same_figures(report, referee.check(document, plan))
    bound = remat.show(document).time_bound
    assert bound <= report.makespan or close(bound, report.makespan, report.makespan)
    for spoil in FAULTS:
        found = spoil(chance, copy.deepcopy(document), copy.deepcopy(plan))
        if found is not None:
            other, spoilt, rule = found
            report, verdict = remat.verify(other, spoilt), referee.check(other, spoilt)
            assert rule in {name for _, name in rules(report)}, (spoil.__name__, other, spoilt)
            assert rule in verdict.rules, (spoil.__name__, other, spoilt)


def on_a_processor_that_may_not(chance, document, plan):
    """Run a task where it is tied away from, or where it has no time."""
    names = [one["name"] for one in document["machine"]["processors"]]
    tasks = {task["id"]: task for task in document["tasks"]}
    options = []
    for step in plan["steps"]:
        if "run" in step:
            good = [one["name"] for one in able(document, tasks[step["run"]])]
            options += [(step, name) for name in names if name not in good]
    if options:
        step, name = chance.choice(options)
        step["on"] = [name]
        return document, plan, "bad-step"
    return None


def lies_nowhere(chance, document, plan):
    if plan["initial"]:
        del plan["initial"][chance.choice(sorted(plan["initial"]))]
        return document, plan, "initial-placement"
    return None


def lies_in_too_many(chance, document, plan):
    memories = [one["name"] for one in document["machine"]["memories"]]
    copies = {one["value"]: one.get("copies", 1) for one in document["inputs"] if isinstance(one, dict)}
    options = [value for value in plan["initial"] if copies[value] < len(memories)]
    if options:
        plan["initial"][chance.choice(options)] = memories
        return document, plan, "initial-placement"
    return None


def place_of_a_fixed_input(chance, document, plan):
    fixed = [one for one in document["inputs"] if isinstance(one, str)]
    if fixed:
        plan["initial"][chance.choice(fixed)] = [document["machine"]["memories"][0]["name"]]
        return document, plan, "initial-placement"
    return None


def does_not_stay(chance, document, plan):
    options = [(value, memory) for value, places in plan["initial"].items() for memory in places]
    if options:
        value, memory = chance.choice(options)
        last = max((step["start"] for step in plan["steps"]), default=0) + 1000
        plan["steps"].append({"drop": [value], "memory": memory, "start": last})
        return document, plan, "pinned-input"
    return None


def a_byte_too_little(chance, document, plan):
    """At its peak a memory is full, its static bytes counted; with one byte more of them, it is too small."""
    report = remat.verify(document, plan)
    options = [
        one
        for one in document["machine"]["memories"]
        if report.peaks[one["name"]].step is not None and report.peaks[one["name"]].size < 2**40
    ]
    if not options:
        return None
    memory = chance.choice(options)
    memory["capacity"] = report.peaks[memory["name"]].size
    same_figures(remat.verify(document, plan), referee.check(document, plan))
    memory["static"] = memory.get("static", 0) + 1
    return document, plan, "capacity"


FAULTS = [
    on_a_processor_that_may_not,
    lies_nowhere,
    lies_in_too_many,
    place_of_a_fixed_input,
    does_not_stay,
    a_byte_too_little,
]


@settings(DRAWN, max_examples=12)
@given(DRAWS, SEEDS)
def test_drawn_plans_and_single_faults(document, number):
    judge(document, number)


@pytest.mark.slow
@settings(DRAWN, max_examples=1500)
@given(dags(exact=True), SEEDS)
def test_many_drawn_plans_and_single_faults(document, number):
    judge(document, number)
