"""Placement of streams against trying all placements, and the reference of inference pipelines."""

import json
import math
import random

import pytest

import remat
from remat.instance import load
from remat.instance.lowering import machine_of, samples_of
from remat.placement import place_stream
from remat.plugin.proposal import ALL_SCHEDULES, Status
from remat_algorithms.kit.programs.duals import Solved
from remat_algorithms.parallel.placement import fractional_loads, placement_replicated
from remat_algorithms.parallel.placement.best_pattern import CONTIGUOUS
from remat_algorithms.parallel.placement.manual_splits import shares
from remat_algorithms.parallel.placement.model import build
from remat_algorithms.parallel.placement.placement_replicated import ONCE
from tests import places
from tests.algorithms.parallel.placement.streams import inference, star
from tests.oracles.placements import least
from tests.verifier.sample_streams import stream

POINTS = json.loads((places.ROOT / "tests/data/reference/pipeline_inference.json").read_text())["points"]
FAST = {
    "tarnawski-ip": {"moves": 2_000, "work": 0.2, "bound_work": 0.2},
    "placement-replicated": {"moves": 2_000, "nodes": 60},
    "placement-bound": {"work": 0.2},
}


def solve(document, algorithm):
    return remat.solve(document, algorithm=algorithm, options=FAST.get(algorithm, {}))


def check_bounds(document, result, most):
    """Assert that bounds over all schedules hold for two samples with recomputation."""
    for bound in result.bounds:
        if bound.scope == ALL_SCHEDULES and most is not None:
            assert bound.value <= float(most) * (1 + 1e-9), bound


def contiguous_is_best(seed):
    chance = random.Random(seed)
    document = star(chance, tasks=5, devices=3, host=chance.random() < 0.4, training=chance.random() < 0.3)
    best, result = least(document, contiguous=True), solve(document, "tarnawski-dp")
    if best is None:
        assert result.makespan is None
        return False
    if best == 0:
        assert result.makespan == 1  # some period there has to be
        return False
    assert result.makespan == best
    assert result.optimal_within in (CONTIGUOUS, ALL_SCHEDULES)
    assert result.lower_bound <= result.makespan
    return True


@pytest.mark.parametrize("seed", range(25))
def test_no_contiguous_placement_is_quicker(seed):
    contiguous_is_best(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_no_contiguous_placement_is_quicker_often(first):
    assert sum(contiguous_is_best(10_000 + seed) for seed in range(first, first + 50)) > 40


def program_is_contiguous(seed):
    """The program of contiguous placements finds and proves the best, where too few down-sets may be looked at."""
    chance = random.Random(seed)
    document = star(chance, tasks=5, devices=3, host=chance.random() < 0.4, training=chance.random() < 0.3)
    best = least(document, contiguous=True)
    options = {"contiguous": True, "sets": 2, "work": 2.0}
    result = remat.solve(document, algorithm="tarnawski-ip", options=options)
    if not best:
        return
    assert result.makespan == best
    assert result.optimal_within in (CONTIGUOUS, ALL_SCHEDULES)


@pytest.mark.parametrize("seed", range(6))
def test_program_is_contiguous(seed):
    program_is_contiguous(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_program_is_contiguous_often(first):
    for seed in range(50_000 + first, 50_020 + first):
        program_is_contiguous(seed)


def two_share(seed):
    """Two processors of one memory: nothing is claimed that the best placements there contradict."""
    chance = random.Random(seed)
    document = star(chance, tasks=4, devices=2, room=(3, 14))
    processors = document["machine"]["processors"]
    processors += [processor | {"name": processor["name"] + "x"} for processor in processors[:1]]
    best = least(document, contiguous=True)
    for options in ({}, {"contiguous": True, "sets": 2, "work": 0.5}):
        result = remat.solve(document, algorithm="tarnawski-ip" if options else "tarnawski-dp", options=options)
        for bound in result.bounds:
            assert bound.scope != CONTIGUOUS or best is None or bound.value <= float(best or 1) * (1 + 1e-9), bound
        assert result.status is not Status.INFEASIBLE or best is None


@pytest.mark.parametrize("seed", range(6))
def test_two_processors_of_a_memory(seed):
    two_share(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_two_processors_of_a_memory_often(first):
    for seed in range(60_000 + first, 60_020 + first):
        two_share(seed)


def any_is_best(seed):
    chance = random.Random(seed)
    document = star(chance, tasks=4, devices=2, host=chance.random() < 0.5, kept=chance.choice([1.0, 0.6]))
    best, result = least(document), solve(document, "tarnawski-ip")
    if best is None:
        return
    assert result.makespan == max(best, best or 1)
    together = least(document, samples=2, again=True)
    check_bounds(document, result, together)
    for algorithm in ("placement-replicated", "placement-bound"):
        other = solve(document, algorithm)
        check_bounds(document, other, together)
        if algorithm == "placement-replicated":
            assert other.makespan <= result.makespan
            assert other.makespan >= other.lower_bound


@pytest.mark.parametrize("seed", range(4))
def test_no_placement_is_quicker(seed):
    any_is_best(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 20))
def test_no_placement_is_quicker_often(first):
    for seed in range(20_000 + first, 20_020 + first):
        any_is_best(seed)


def no_split_is_quicker(seed):
    """Assert that no fitting manual split and no contiguous placement is faster, on any machine."""
    chance = random.Random(seed)
    document = stream(chance, tasks=6, room=chance.choice([None, (10, 30)]))
    own = remat.solve(document, algorithm="tarnawski-ip", options=FAST["tarnawski-ip"]).makespan
    line = remat.solve(document, algorithm="tarnawski-dp").makespan
    assert line is None or own <= line
    instance = load(document)
    machine = machine_of(instance)
    graph = samples_of(instance, machine).graph
    model = build(graph, machine)
    for split in shares(model):
        placed = place_stream(graph, machine, [model.homes(split)])
        assert not placed.fits or own <= placed.pattern.period
    return own is not None


@pytest.mark.parametrize("seed", range(6))
def test_no_split_is_quicker(seed):
    no_split_is_quicker(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_no_split_is_quicker_often(first):
    assert sum(no_split_is_quicker(70_000 + seed) for seed in range(first, first + 20)) > 10


def in_scarce_memory(seed):
    """Assert a proof if parameters do not fit; otherwise expect a placement unless values in transit exceed memory."""
    chance = random.Random(seed)
    document = star(chance, tasks=4, devices=2, room=(3, 14))
    best = least(document)
    for algorithm in ("tarnawski-dp", "tarnawski-ip"):
        result = solve(document, algorithm)
        if best is None:
            assert result.status in (Status.INFEASIBLE, Status.UNKNOWN)
        else:
            assert result.status is not Status.INFEASIBLE or not result.least_budget.sufficient
        if result.makespan is not None:
            assert result.makespan >= best
            check_bounds(document, result, least(document, samples=2, again=True))
            if result.optimal_within == ALL_SCHEDULES:
                assert result.makespan == max(best, best or 1)


@pytest.mark.parametrize("seed", range(8))
def test_scarce_memory_is_respected(seed):
    in_scarce_memory(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 20))
def test_scarce_memory_is_respected_on_many_instances(first):
    for seed in range(30_000 + first, 30_020 + first):
        in_scarce_memory(seed)


def copies_are_worth_it(seed):
    chance = random.Random(seed)
    document = star(chance, tasks=3, devices=2, room=(4, 14), copies=2)
    best = least(document, samples=2)
    result = solve(document, "placement-replicated")
    if best is not None and result.makespan is not None:
        for bound in result.bounds:
            if bound.scope in (ALL_SCHEDULES, ONCE):
                assert bound.value <= float(best) * (1 + 1e-9), bound


@pytest.mark.parametrize("seed", range(6))
def test_bounds_on_copies(seed):
    copies_are_worth_it(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_bounds_on_copies_often(first):
    for seed in range(40_000 + first, 40_020 + first):
        copies_are_worth_it(seed)


def transfers_are_long(seed):
    """Assert that bounds hold for two samples if a copy takes longer than all runs together."""
    chance = random.Random(seed)
    document = star(chance, tasks=3, devices=2, room=(4, 14), copies=2, host=chance.random() < 0.5)
    for value in document["values"]:
        value["size"] *= 20
    for memory in document["machine"]["memories"][1:]:
        memory["capacity"] += 200
    best = least(document, samples=2)
    result = remat.solve(document, algorithm="placement-replicated", options={"moves": 0, "nodes": 60})
    for bound in result.bounds:
        if best is not None and bound.scope in (ALL_SCHEDULES, ONCE):
            assert bound.value <= float(best) * (1 + 1e-9), bound
    return best is not None and result.optimal_within is not None


@pytest.mark.parametrize("seed", [*range(15, 21), 45])
def test_bounds_on_long_transfers(seed):
    transfers_are_long(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_bounds_on_long_transfers_often(first):
    assert sum(transfers_are_long(80_000 + seed) for seed in range(first, first + 20)) > 3


def test_transfers_that_must_be():
    """Each task runs on one device only: shares are whole, and the time is that of the copy between them."""
    document = star(random.Random(2), tasks=2, devices=2, kept=0.0)
    memories = [{"name": name} for name in ("host", "a", "b")]
    ends = [ends for name in ("a", "b") for ends in ((name, "host"), ("host", name))]
    document["machine"] = {
        "memories": memories,
        "processors": [{"name": name, "memory": name, "type": name} for name in ("a", "b")],
        "links": [{"source": one, "target": other, "bandwidth": 1} for one, other in ends],
    }
    document["values"] = [{"id": "x", "size": 50}]
    document["tasks"] = [
        {"id": "first", "time": {"a": 2}, "reads": [], "writes": ["x"]},
        {"id": "then", "time": {"b": 3}, "reads": ["x"], "writes": []},
    ]
    result = remat.solve(document, algorithm="placement-replicated")
    assert (result.makespan, result.status) == (50, Status.OPTIMAL)


@pytest.mark.parametrize("seed", [6, 8, 13, 20])
def test_what_is_not_solved_is_not_excluded(seed, monkeypatch):
    """Choices of copies whose program stays without an answer are no worse than the others: the best is among them."""
    document = star(random.Random(seed), tasks=3, devices=2, room=(4, 14), copies=2)
    options = {"moves": 0, "nodes": 60}
    best = remat.solve(document, algorithm="placement-replicated", options=options).makespan
    solve_linear, answers = fractional_loads.solve_linear, []

    def at_first(program, seconds):
        answers.append(Solved(None, -math.inf) if answers else solve_linear(program, seconds))
        return answers[-1]

    monkeypatch.setattr(fractional_loads, "solve_linear", at_first)
    monkeypatch.setattr(placement_replicated._Search, "_known", lambda self: None)  # the root is the first
    result = remat.solve(document, algorithm="placement-replicated", options=options)
    assert len(answers) > 1
    assert result.makespan > best
    assert result.optimal_within is None
    assert result.lower_bound <= best
    assert max(bound.value for bound in result.bounds if bound.source == "shared loads") <= best


@pytest.mark.parametrize("point", POINTS, ids=lambda point: str(point["id"]))
def test_reference_of_inference(point):
    result = solve(inference(point, 1), "tarnawski-ip")
    assert result.makespan == point["best_period_one_copy"]
    assert result.status is Status.OPTIMAL
    shared = remat.solve(inference(point, 9), algorithm="placement-replicated", options={"moves": 2_000})
    assert shared.makespan == pytest.approx(point["best_period_copies"], rel=1e-9)
    assert shared.status is Status.OPTIMAL


def test_whole_units_are_counted():
    """Of three equal tasks that stay where their parameters are, one of two devices runs two."""
    links = [{"source": one, "target": other, "bandwidth": 1} for one, other in (("a", "b"), ("b", "a"))]
    document = {
        "schema": "remat.instance/3",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "stream": 2,
        "machine": {
            "memories": [{"name": "a"}, {"name": "b"}],
            "processors": [{"name": name, "memory": name} for name in "ab"],
            "links": links,
        },
        "values": [{"id": f"{letter}{k}", "size": 1} for k in range(3) for letter in "vw"],
        "inputs": [{"value": f"w{k}", "memory": "any"} for k in range(3)],
        "tasks": [{"id": f"t{k}", "time": 5, "reads": [f"w{k}"], "writes": [f"v{k}"]} for k in range(3)],
        "outputs": [],
    }
    document["tasks"] = [task | {"required": True} for task in document["tasks"]]
    found = {bound.source: bound.value for bound in remat.solve(document, algorithm="placement-bound").bounds}
    assert found["longest unit"] == 5
    assert found["whole units"] == 10


@pytest.mark.parametrize("algorithm", ["placement-bound", "placement-replicated", "tarnawski-dp", "auto"])
def test_rounding_hides_no_smaller_integer(algorithm):
    """Both tasks on one device take six units more than each on its own: less than floats of this size resolve."""
    long = 3 * 2**60 + 6
    document = {
        "schema": "remat.instance/3",
        "kind": "dag",
        "stream": 3,
        "machine": {
            "memories": [{"name": "m0"}, {"name": "m1"}],
            "processors": [{"name": "p0", "memory": "m0"}, {"name": "p1", "memory": "m1"}],
            "links": [{"source": "m0", "target": "m1"}, {"source": "m1", "target": "m0"}],
        },
        "inputs": [{"value": "w", "memory": "any"}],
        "values": [{"id": "w", "size": 0}, {"id": "x", "size": 5}, {"id": "y", "size": 3}],
        "tasks": [
            {"id": "t0", "time": long, "reads": ["w"], "writes": ["x"]},
            {"id": "t1", "time": 6, "reads": ["x"], "writes": ["y"]},
        ],
    }
    result = remat.solve(document, algorithm=algorithm)
    assert result.makespan in {long, long + 6}
    assert result.makespan == long or result.optimal_within is None
