"""`tarnawski-dp` on machines that lack links: the best row of linked devices, compared with all of them."""

import random
from itertools import combinations, pairwise, permutations

import pytest

import remat
from remat.solving.problem_setup import make_problem


def drawn(seed, kinds=("gpu",)):
    """Return a pipeline without end, and a machine in which some devices are not linked in both directions."""
    draw = random.Random(f"missing links {seed}")
    count = draw.randint(2, 4)
    names = [f"d{k}" for k in range(count)]
    types = [draw.choice(kinds) for _ in names]
    layers = [
        {
            "forward_time": {kind: draw.randint(0, 9) for kind in kinds},
            "backward_time": {kind: draw.randint(0, 9) for kind in kinds},
        }
        for _ in range(draw.randint(2, 5))
    ]
    devices = [{"name": name, "type": kind} for name, kind in zip(names, types, strict=True)]
    head = {"schema": "remat.instance/3", "kind": "pipeline", "micro_batches": 3, "weights": "single"}
    latency = draw.randint(0, 3)
    ends = [(one, other) for one, other in permutations(names, 2) if draw.random() < 0.6]
    machine = {
        "memories": [{"name": name} for name in names],
        "processors": [{**device, "memory": device["name"]} for device in devices],
        "links": [{"source": one, "target": other, "latency": latency} for one, other in ends],
    }
    return {**head, "layers": layers, "cluster": {"devices": devices}}, machine


def least_period(document, machine):
    """Return the busy time of the busiest device or link, of the best stages on the best row of linked devices."""
    layers, links = document["layers"], {(one["source"], one["target"]) for one in machine["links"]}
    latency = machine["links"][0]["latency"] if links else 0
    found = []
    for stages in range(1, 1 + min(len(layers), len(machine["processors"]))):
        for row in permutations(machine["processors"], stages):
            names = [one["name"] for one in row]
            if not all({(one, other), (other, one)} <= links for one, other in pairwise(names)):
                continue
            for cuts in combinations(range(1, len(layers)), stages - 1):
                parts = [layers[first:end] for first, end in pairwise((0, *cuts, len(layers)))]
                times = [
                    sum(layer[key][one["type"]] for layer in part for key in ("forward_time", "backward_time"))
                    for part, one in zip(parts, row, strict=True)
                ]
                found.append(max(*times, latency if stages > 1 else 0, 0))
    return min(found)


@pytest.mark.parametrize("seed", range(25))
def test_equal_devices_are_used_as_well_as_links_allow(seed):
    document, machine = drawn(seed)
    result = remat.solve(document, machine=machine, algorithm="tarnawski-dp")
    assert result.report.steady.period == max(1, least_period(document, machine))


MIXED = [*range(12), 37, 48, 104, 219, 235]
"""Some of these once used fewer devices, or a worse order of different ones."""


@pytest.mark.parametrize("seed", [*MIXED, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(300, 600))])
def test_different_devices_are_used_as_well_as_links_allow(seed):
    document, machine = drawn(seed, kinds=("gpu", "slow"))
    result = remat.solve(document, machine=machine, algorithm="tarnawski-dp")
    assert result.report.steady.period == max(1, least_period(document, machine))


def test_devices_are_those_of_the_machine():
    """Missing links change the order of its processors, and so the type of each number."""
    document, machine = drawn(9, kinds=("gpu", "slow"))
    instance = make_problem(remat.load(document), machine=machine)
    assert [own.type for own in instance.machine.processors] != instance.instance.device_types
    assert [own.type for own in instance.machine.processors] == instance.used.instance.device_types
    result = remat.solve(document, machine=machine, algorithm="madpipe", options={"work": 0.02})
    assert result.report.ok
    assert result.report.steady.period == least_period(document, machine)


def test_devices_without_any_link_are_used_alone():
    document, machine = drawn(0)
    machine["links"] = []
    result = remat.solve(document | {"weights": "flush"}, machine=machine, algorithm="tarnawski-dp")
    assert len({stage.device for stage in result.orders.stages}) == 1
