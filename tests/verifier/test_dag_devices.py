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
    place_in_less(chance, copy.deepcopy(document), plan, report)
    for spoil in FAULTS:
        found = spoil(chance, copy.deepcopy(document), copy.deepcopy(plan))
        if found is not None:
            other, spoilt, rule = found
            report, verdict = remat.verify(other, spoilt), referee.check(other, spoilt)
            assert rule in {name for _, name in rules(report)}, (spoil.__name__, other, spoilt)
            assert rule in verdict.rules, (spoil.__name__, other, spoilt)


def place_in_less(chance, document, plan, report):
    """Both placers find the same starts, or the same step that does not fit, where memories are as small as that."""
    for memory in document["machine"]["memories"]:
        if report.peaks[memory["name"]].size < 2**40:
            begins = int(report.profiles[memory["name"]].size[0])
            memory["capacity"] = max(begins, report.peaks[memory["name"]].size - chance.randint(0, 3))
    # The tests' placer knows no `initial`: what is placed there lies there.
    placed = [{"value": value, "memory": memory} for value, where in plan["initial"].items() for memory in where]
    document["inputs"] = [one for one in document["inputs"] if isinstance(one, str)] + placed
    document["outputs"] = [one for one in document["outputs"] if isinstance(one, str)]
    plan = {"schema": "remat.schedule/1", "steps": plan["steps"]}
    instance = load(document)
    machine, graph = machine_of(instance), lower(instance)
    found = place(graph, machine, parse_steps(plan, graph, machine, instance.units.build()))
    wanted = placer.place(document, plan["steps"])
    if isinstance(wanted, tuple):
        assert found.step == wanted[1]
    else:
        scale = max(wanted, default=0)
        assert all(close(*pair, scale) for pair in zip(found.start.tolist(), wanted, strict=True))


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


def collective_on_others(chance, document, plan):
    """Run a collective on one processor too few, or on two of one memory, or with something to drop."""
    tasks = {task["id"]: task for task in document["tasks"]}
    options = [step for step in plan["steps"] if "run" in step and "parts" in tasks[step["run"]]]
    if not options:
        return None
    step = chance.choice(options)
    if len(step["on"]) > 1 and chance.random() < 0.7:
        step["on"] = step["on"][:-1]
    else:
        step["on"] = [*step["on"], chance.choice(document["machine"]["processors"])["name"]]
    return document, plan, "bad-step"


def collective_before_its_data(chance, document, plan):
    """A collective begins when what one of its parts reads has not come."""
    tasks = {task["id"]: task for task in document["tasks"]}
    steps = plan["steps"]
    given = {one if isinstance(one, str) else one["value"] for one in document["inputs"]}
    made = {
        value for task in document["tasks"] for value in ([task["id"]] if "size" in task else task.get("writes", []))
    }
    options = [
        step
        for step in steps
        if "run" in step
        and any(part["reads"] and made - given >= set(part["reads"]) for part in tasks[step["run"]].get("parts", []))
    ]
    if not options:
        return None
    step = chance.choice(options)
    plan["steps"] = [step | {"start": 0}, *(other for other in steps if other is not step)]
    return document, plan, "read-missing"


FAULTS = [
    collective_on_others,
    collective_before_its_data,
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


@pytest.mark.parametrize(("start", "rules"), [(0, {"resource-busy"}), (4, set())])
def test_a_collective_of_one_part_occupies_the_link_to_its_own_memory(start, rules):
    document = {
        "schema": "remat.instance/3",
        "kind": "dag",
        "machine": {
            "memories": [{"name": "m"}],
            "processors": [{"name": "p", "memory": "m"}, {"name": "q", "memory": "m"}],
            "links": [{"source": "m", "target": "m", "bandwidth": 1}],
        },
        "values": [{"id": "a", "size": 1}, {"id": "b", "size": 1}],
        "tasks": [{"id": f"reduce {name}", "time": 4, "parts": [{"writes": [name]}]} for name in "ab"],
    }
    steps = [
        {"run": "reduce a", "on": ["p"], "start": 0},
        {"run": "reduce b", "on": ["q"], "start": start},
    ]
    report = remat.verify(document, {"schema": "remat.schedule/2", "steps": steps})
    assert {violation.rule for violation in report.violations} == rules
