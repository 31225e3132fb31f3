"""The bound of mandatory transfers: below every schedule, and equal to the best one where transfers decide."""

import math
import random
from fractions import Fraction

import pytest

import remat
from remat.solving.problem_setup import make_problem
from tests.algorithms.dag.moments import drawn
from tests.oracles import offloading


def document(tasks, *, schema=1, links=None, processors=None, outputs=(), inputs=(), sizes=()):
    used = dict(sizes) or {name: 12 for task in tasks for name in (*task.get("reads", ()), *task.get("writes", ()))}
    return {
        "schema": f"remat.instance/{schema}",
        "kind": "dag",
        "tasks": tasks,
        "values": [{"id": name, "size": size} for name, size in used.items()],
        "inputs": [{"value": name, "memory": "host"} for name in inputs],
        "outputs": [{"value": name, "memory": "host"} for name in outputs],
        "machine": {
            "memories": [{"name": "device"}, {"name": "host"}],
            "processors": processors or [{"name": "gpu", "memory": "device"}],
            "links": links
            or [
                {"source": "device", "target": "host", "bandwidth": 4, "channel": "out"},
                {"source": "host", "target": "device", "bandwidth": 4, "channel": "in"},
            ],
        },
    }


UPDATES = [{"id": f"t{i}", "time": 1, "reads": [f"p{i}"], "writes": [f"q{i}"]} for i in range(4)]
ENDS = {"inputs": [f"p{i}" for i in range(4)], "outputs": [f"q{i}" for i in range(4)]}


def bound(instance):
    return make_problem(remat.load(instance)).transfer_bound


def test_both_directions_work_at_once():
    """Four parameters of three time units each come in; the last one is updated and leaves."""
    assert bound(document(UPDATES, **ENDS)) == pytest.approx(12 + 1 + 3)


@pytest.mark.parametrize(("channel", "least"), [("both", 24), ("gpu", 28)])
def test_transfers_that_exclude_each_other_add_up(channel, least):
    links = [
        {"source": "device", "target": "host", "bandwidth": 4, "channel": channel},
        {"source": "host", "target": "device", "bandwidth": 4, "channel": channel},
    ]
    assert bound(document(UPDATES, links=links, **ENDS)) == pytest.approx(least)


def test_a_task_that_may_run_at_the_host_needs_no_transfer():
    both = [{"name": "gpu", "memory": "device", "type": "gpu"}, {"name": "cpu", "memory": "host", "type": "cpu"}]
    anywhere = [task | {"time": {"gpu": 1, "cpu": 9}} for task in UPDATES]
    assert bound(document(anywhere, schema=3, processors=both, **ENDS)) == 0
    one_stays = [*anywhere[:3], UPDATES[3] | {"time": {"gpu": 1}}]
    assert bound(document(one_stays, schema=3, processors=both, **ENDS)) == pytest.approx(3 + 1 + 3)


def test_what_a_task_can_make_need_not_come():
    made = [{"id": "make", "time": 5, "writes": ["p0"], "required": False}, *UPDATES[:1]]
    assert bound(document(made, inputs=["p0"], outputs=[], sizes={"p0": 12, "q0": 12})) == 0


def test_overhead_is_relative_to_mandatory_transfers():
    result = remat.solve(document(UPDATES, **ENDS), time_limit=5)
    assert result.makespan == result.lower_bound == 16
    assert result.overhead == pytest.approx(0, abs=1e-9)
    assert "that mandatory transfers take" in result.summary()


def test_below_the_best_of_all_schedules():
    """The bound never exceeds exhaustive search on tiny graphs with inputs and outputs at a host."""
    met = compared = 0
    for seed in range(60):
        draw = random.Random(seed)
        instance = drawn.graph(draw, 3, alternatives=seed % 2 == 1, host=True)
        names = [value["value"] if isinstance(value, dict) else value for value in instance["inputs"]]
        instance["inputs"] = [{"value": name, "memory": "host"} for name in names]
        found = make_problem(remat.load(instance)).transfer_bound
        best = offloading.least_makespan(instance, None, recompute=True, states=3_000)
        if best is None or best is math.nan or math.isnan(best):
            continue
        assert Fraction(found) <= best
        compared += found > 0
        met += found > 0 and math.isclose(found, best)
    assert compared >= 20
    assert met >= 5
