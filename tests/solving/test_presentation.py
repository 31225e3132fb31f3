"""Presentation never matters: orders of lists, names and unused memories change no answer."""

import itertools
import json
import math
import random

import pytest

import remat
from remat.instance.lowering import machine_of
from remat.plugin import registry, selection
from remat.solving.problem_setup import make_problem
from tests.fuzz import forms, transformations
from tests.fuzz.invariances import READ_NAMES
from tests.fuzz.options import WORK

LIMITS = {"iterations": 4, "work": 0.002, "states": 2000, "moves": 2000, "window": 500, "evaluations": 10}
"""Options that bound the work of what `auto` asks."""

SAME = {
    "memories": transformations.permute_memories,
    "processors": transformations.permute_processors,
    "links": transformations.permute_links,
    "values": transformations.permute_values,
    "names": transformations.rename_all,
    "unused": transformations.add_unused_memory,
}


def answer(document, algorithm, budget):
    """Return the invariant parts of an answer: status, figures, peaks, minimum budget, or the refusal."""
    try:
        options = limits(document) if algorithm == "auto" else WORK.get(algorithm, {})
        result = remat.solve(document, algorithm=algorithm, budget=budget, options=options)
    except remat.RematError as error:
        return type(error)
    least = result.least_budget
    peaks = {name: peak for name, peak in result.peak_memory.items() if not name.startswith("spare")}
    return result.status, result.makespan, result.lower_bound, peaks, least and (least.memory, least.size)


def limits(document):
    problem = make_problem(remat.load(document)).used
    models = [candidate.algorithm.load_options() for candidate in selection.candidates(problem).asked]
    known = {name for model in models if model is not None for name in model.model_fields}
    return {name: value for name, value in LIMITS.items() if name in known}


def named(given, names):
    """Return an answer with renamed memories, sorted to ignore the order of equal ones."""
    if isinstance(given, type):
        return given
    *figures, peaks, least = given
    return figures, sorted(peaks.values()), least and least[1], sorted(names)


def without_peaks(given):
    return given if isinstance(given, type) else (*given[:3], *given[4:])


def check_same(document, algorithm, budget):
    before = answer(document, algorithm, budget)
    for name, change in SAME.items():
        if name == "names" and algorithm in READ_NAMES:
            continue
        changed = change(document, random.Random(json.dumps(document)))
        if changed is None:
            continue
        after = answer(changed, algorithm, budget)
        if name == "names":
            names = transformations.new_names(document, changed)
            assert same(named(before, names), named(after, names)), name
        elif name == "values":  # constraint programs may find another one of equally fast schedules
            assert same(without_peaks(before), without_peaks(after)), name
        else:
            assert same(before, after), name


def same(one, other):
    """Whether answers are the same; floats that are added up in another order differ in their last digits."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def with_machine(first):
    """Yield drawn documents that have a machine, or storage."""
    for seed in itertools.count(first):
        document, form = forms.document(f"presentation {seed}")
        if form != "large" and (document.get("machine") or document.get("storage")):
            try:
                remat.load(document)
            except remat.InstanceError:
                continue
            yield document


def budgets(document):
    """A budget that is no limit, and one that is."""
    total = sum(make_problem(remat.load(document)).graph.size.tolist())
    return None, total * 2 // 3


@pytest.mark.parametrize("number", range(12))
def test_another_presentation_gives_the_same_answer(number):
    document = next(itertools.islice(with_machine(1000 * number), 1))
    rng = random.Random(number)
    listed = [solver.name for solver in registry.algorithms(document["kind"], available=True)]
    budget = rng.choice(budgets(document))
    for algorithm in rng.sample(listed, 4):
        check_same(document, algorithm, budget)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(100, 160))
def test_many_drawn_instances(number):
    document = next(itertools.islice(with_machine(1000 * number), 1))
    rng = random.Random(number)
    listed = [solver.name for solver in registry.algorithms(document["kind"], available=True)]
    budget = rng.choice(budgets(document))
    for algorithm in ["auto", *rng.sample(listed, min(12, len(listed)))]:
        check_same(document, algorithm, budget)


MACHINE = {
    "memories": [{"name": "host"}, {"name": "device"}],
    "processors": [{"name": "gpu", "memory": "device"}],
    "links": [
        {"source": "device", "target": "host", "bandwidth": 3},
        {"source": "host", "target": "device", "bandwidth": 3},
    ],
}
STAGE = {"backward_time": 2, "output_size": 5, "saved_size": 7}
CHAIN = {
    "schema": "remat.instance/2",
    "kind": "chain",
    "input_size": 5,
    "stages": [STAGE | {"forward_time": time} for time in (1, 3)],
    "machine": MACHINE,
}
ADJOINT = {"schema": "remat.instance/2", "kind": "adjoint", "steps": 12, "backward_time": 2, "machine": MACHINE}
DAG = {
    "schema": "remat.instance/2",
    "kind": "dag",
    "inputs": ["x", {"value": "w", "memory": "host"}],
    "outputs": ["z"],
    "values": [{"id": "x", "size": 4}, {"id": "w", "size": 2}],
    "tasks": [
        {"id": "y", "time": 2, "reads": ["x"], "size": 5},
        {"id": "z", "time": 3, "reads": ["x", "y", "w"], "size": 1},
    ],
    "machine": MACHINE,
}


@pytest.mark.parametrize(("document", "budget"), [(CHAIN, 40), (ADJOINT, 6), (DAG, 12)])
def test_auto_with_the_host_listed_first(document, budget):
    check_same(document, "auto", budget)
    result = remat.solve(document, budget=budget, options=limits(document))
    assert result.peak_memory["device"] <= budget  # not the host, although that is listed first
    assert [memory.name for memory in result.machine.memories] == ["device", "host"]
    assert remat.verify(document, result.to_dict()).ok


@pytest.mark.parametrize("question", ["least_budget", "largest_batch", "sweep"])
def test_questions_are_about_the_working_memory(question):
    document = CHAIN | {"machine": MACHINE | {"links": []}}
    first = document | {"machine": MACHINE | {"links": [], "memories": MACHINE["memories"][::-1]}}
    arguments = {
        "least_budget": {"max_overhead": 0.5},
        "largest_batch": {"budget": 40},
        "sweep": {"budgets": [30, 40, "80%"]},
    }[question]
    arguments["algorithms" if question == "sweep" else "algorithm"] = "rotor"
    found = [getattr(remat, question)(one, **arguments) for one in (document, first)]
    if question == "sweep":
        assert {one.memory for one in found} == {"device"}
        one, other = ([(point.budget, point.makespan) for point in each.curves[0].points] for each in found)
        assert one == other
    else:
        assert found[0].answer.memory == "device"
        assert found[0].answer.value == found[1].answer.value is not None


def test_the_reference_processor_may_be_listed_anywhere():
    processors = [{"name": "slow", "memory": "host", "speed": 0.5}, {"name": "gpu", "memory": "device"}]
    document = CHAIN | {"machine": MACHINE | {"processors": processors}}
    machine = machine_of(remat.load(document))
    assert [(one.name, one.speed) for one in machine.processors] == [("gpu", 1), ("slow", 0.5)]
    assert machine.memories[0].name == "device"
    none = [one | {"speed": 0.5} for one in processors]
    with pytest.raises(remat.InstanceError, match="no processor has speed 1"):
        remat.load(document | {"machine": MACHINE | {"processors": none}})


def test_storage_levels_are_used_from_quick_to_slow():
    ram, disk = {"name": "ram", "slots": 2}, {"name": "disk", "write_time": 5, "read_time": 3}
    loop = {"schema": "remat.instance/1", "kind": "adjoint", "steps": 9}
    for storage in ([ram, disk], [disk, ram]):
        machine = machine_of(remat.load(loop | {"storage": storage}))
        assert [memory.name for memory in machine.memories] == ["working", "ram", "disk"]
    results = [
        remat.solve(loop | {"storage": storage}, algorithm="h-revolve", budget=3)
        for storage in ([ram, disk], [disk, ram])
    ]
    assert results[0].peak_memory == results[1].peak_memory
    assert results[0].machine.memories[1].capacity == 3
    assert results[0].makespan == results[1].makespan


def test_a_memory_that_nothing_uses_is_listed_with_a_peak_of_zero():
    spare = {"memories": [{"name": "spare", "capacity": 9}, {"name": "memory"}]}
    spare["processors"] = [{"name": "processor", "memory": "memory"}]
    plain = {key: value for key, value in CHAIN.items() if key != "machine"}
    for algorithm in ("rotor", "chain-exact", "auto"):
        alone = remat.solve(plain, algorithm=algorithm, budget=40)
        beside = remat.solve(plain | {"machine": spare}, algorithm=algorithm, budget=40)
        assert (beside.status, beside.makespan, beside.lower_bound) == (alone.status, alone.makespan, alone.lower_bound)
        assert beside.peak_memory == alone.peak_memory | {"spare": 0}
        assert beside.optimal_within == alone.optimal_within
        assert remat.verify(plain | {"machine": spare}, beside.to_dict()).ok


def test_schedules_written_for_another_listing_still_verify():
    first = CHAIN | {"machine": MACHINE | {"memories": MACHINE["memories"][::-1]}}
    written = remat.solve(first, algorithm="offload-greedy", budget=40).to_dict()
    # Documents list the machine as it was when they were written, whatever the order.
    written["machine"]["memories"].reverse()
    assert remat.verify(first, written).ok
    assert remat.verify(CHAIN, written, any_instance=True).ok
