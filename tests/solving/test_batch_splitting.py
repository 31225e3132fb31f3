"""Sizes of micro-batches that are left to the schedule: the best of all sizes, and what holds for all of them."""

import pytest

import remat
from remat.errors import InstanceError
from remat.instance import digest, load


def document(works, *, samples=1, micro_batches=8, devices=2, **more):
    """Return equal layers, one a device; `works` has (forward, backward, saved) by size, the first being the own."""
    layers = {
        size: [{"forward_time": forward, "backward_time": backward, "saved_size": saved}]
        for size, (forward, backward, saved) in works.items()
    }
    own = layers.pop(samples)
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "micro_batches": micro_batches,
        "samples": samples,
        "layers": [own[0] | {"repeat": devices}],
        "sizes": [{"samples": size, "layers": listed} for size, listed in layers.items()],
        "cluster": {"devices": [{"name": "d", "count": devices}]},
    } | more


WORKS = {1: (2, 4, 3), 2: (3, 6, 6), 4: (5, 10, 12), 8: (10, 20, 24)}


def alone(size):
    """Return the instance with micro-batches of one size, written by hand."""
    given = document({size: WORKS[size]}, samples=size, micro_batches=8 // size)
    del given["sizes"]
    return given


@pytest.mark.parametrize("algorithm", ["gpipe", "1f1b", pytest.param("auto", marks=pytest.mark.slow)])
def test_best_of_all_sizes(algorithm):
    each = {size: remat.solve(alone(size), algorithm=algorithm) for size in WORKS}
    result = remat.solve(document(WORKS), algorithm=algorithm)
    best = min(each, key=lambda size: each[size].makespan)
    assert result.makespan == each[best].makespan
    assert result.to_dict()["samples"] == best
    assert result.lower_bound == min(one.lower_bound for one in each.values())
    assert digest(result.instance) == digest(load(alone(best)))


def test_memory_decides_the_size_of_micro_batches():
    """1F1B takes 54, 45, 45 and 60, and keeps two activations on the first device: 12 of size 2, 6 of size 1."""
    limits = {100: 2, 12: 2, 11: 1, 6: 1}
    for budget, size in limits.items():
        assert remat.solve(document(WORKS), algorithm="1f1b", budget=budget).to_dict()["samples"] == size


def test_infeasible_for_every_size():
    result = remat.solve(document(WORKS, devices=1), algorithm="1f1b", budget=2)
    assert result.status == "infeasible"
    assert result.least_budget.size == 3


def test_a_class_that_is_empty_for_every_size():
    result = remat.solve(document(WORKS), algorithm="1f1b", budget=5)
    assert (result.status, result.scope) == ("unknown", "the 1f1b schedule of evenly cut layers")
    assert result.least_budget.size == 6


def test_a_share_is_of_the_listed_size():
    """1F1B on micro-batches of 1 peaks at 6: half of that is one activation of size 1, and of no other."""
    result = remat.solve(document(WORKS), budget="50%", time_limit=5)
    assert result.machine.memories[0].capacity == 3
    assert result.to_dict()["samples"] == 1


def test_schedules_name_their_size(tmp_path):
    given = document(WORKS)
    result = remat.solve(given, algorithm="1f1b")
    result.save(tmp_path / "plan.json")
    report = remat.verify(given, tmp_path / "plan.json")
    assert report.ok
    assert report.makespan == result.makespan
    plan = result.to_dict()
    assert not remat.verify(given, plan | {"samples": 1}).ok  # half of the operations are missing
    with pytest.raises(InstanceError, match=r"no micro-batches of 3 samples, only of 1, 2, 4, 8"):
        remat.verify(given, plan | {"samples": 3})
    del plan["samples"]
    with pytest.raises(InstanceError, match="expected samples"):
        remat.verify(given, plan)
    with pytest.raises(InstanceError, match="no tokens to cut"):
        remat.verify(given, result.to_dict() | {"cut": [1]})


def test_what_is_asked_of_one_division():
    given = document(WORKS)
    for ask in (remat.least_budget, remat.sweep):
        with pytest.raises(remat.OptionError, match="leaves the division of its batch to the schedule"):
            ask(given, **({"max_overhead": "10%"} if ask is remat.least_budget else {"algorithms": "1f1b"}))
    with pytest.raises(remat.OptionError, match="the division of the batch is open"):
        remat.solve(given, algorithm="1f1b", warm_start=remat.solve(alone(1), algorithm="1f1b"))


def test_facts_say_what_is_open():
    assert remat.show(document(WORKS)).divisions == "micro-batches of 1 or 2 or 4 or 8"
    assert remat.show(alone(2)).divisions == ""


def test_a_refusal_of_every_size():
    with pytest.raises(remat.OptionError, match="no layer gives a weight_time"):
        remat.solve(document(WORKS), algorithm="zb-h1")


def test_a_schedule_of_the_only_size_is_for_the_instance_as_given():
    """Whatever the order in which the parts of a micro-batch are listed."""
    work = {"forward_time": 1, "backward_time": 1}
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "micro_batches": 4,
        "copies": 2,
        "samples": 6,
        "layers": [{**work, "output_size": 1, "forward_time": 3}] * 2,
        "parts": [{"samples": 3, "layers": [work] * 2}, {"samples": 2, "layers": [work] * 2}],
        "cluster": {"devices": [{"name": "gpu", "count": 2}]},
    }
    result = remat.solve(document, algorithm="gems")
    assert result.report is not None
    assert remat.verify(document, result.to_dict()).ok
