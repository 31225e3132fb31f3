"""`zero-infinity` with three memories: activations that wait on NVMe, by hand and on a model."""

from __future__ import annotations

import pytest

import remat
from remat.generate import generate
from tests.algorithms.offload.trained import chain, machine, stage
from tests.algorithms.offload.weights.test_zero import solve


def three_memories():
    two = machine()
    ways = [{"source": a, "target": b, "bandwidth": 2} for a, b in (("host", "nvme"), ("nvme", "host"))]
    return two | {"memories": [*two["memories"], {"name": "nvme"}], "links": [*two["links"], *ways]}


# Five stages: forwards of 2, backwards of 4, parameters of 4 (2 a transfer), activations of 1 (0.5 a transfer). x0 to
# x3 leave with the forward after the one that makes them has ended, and go on from the host at once. Each is called for
# while the stage above is recomputed (Fe5 at 12, Fe4 at 18, Fe3 at 24, Fe2 at 30): it is at the host half a unit later,
# where the link to the device carries parameters until 14, 20, 26, 32.
ON_NVME = """
    4     x0 device
    4.5   x0 host
    6     x1 device
    6.5   x1 host
    8     x2 device
    8.5   x2 host
    10    x3 device
    10.5  x3 host
    12    x3 nvme
    14    x3 host
    18    x2 nvme
    20    x2 host
    24    x1 nvme
    26    x1 host
    30    x0 nvme
    32    x0 host
"""


def test_activations_on_nvme_by_hand():
    document = chain(*[stage() for _ in range(5)], parameters="host", master_copy=True) | {"machine": three_memories()}
    result = solve(document, "zero-infinity", activations="nvme")
    moves = sorted(
        (step["start"], step["copy"], step["from"])
        for step in result.to_dict()["steps"]
        if step.get("copy", "").startswith("x")
    )
    lines = [line.split() for line in ON_NVME.strip().splitlines()]
    assert moves == sorted((float(start), value, source) for start, value, source in lines)
    # Forwards 10, each stage again and back 30, the last gradient 2, its update 2 on a processor of half the speed.
    assert result.makespan == 46
    assert result.peak_memory["nvme"] == 4
    near = solve(document, "zero-infinity", activations="host")
    assert near.makespan == 46
    assert near.peak_memory["nvme"] == 0
    assert near.peak_memory["device"] == result.peak_memory["device"]


@pytest.mark.parametrize("homes", [("host", "nvme"), ("nvme", "nvme")])
def test_everything_in_the_third_tier(homes):
    """The device holds the same bytes as with activations at the host; the host's bytes are on NVMe."""
    parameters, states = homes
    document = generate("chain", "transformer", layers=4, batch=2, parameters=parameters, states=states)
    found = {
        where: remat.solve(document, algorithm="zero-infinity", options={"activations": where})
        for where in ("device", "host", "nvme")
    }
    device = {where: result.peak_memory["device"] for where, result in found.items()}
    assert device["nvme"] == device["host"] < device["device"]
    sent = {where: result.report.transferred["host->nvme"] for where, result in found.items()}
    assert sent["nvme"] > sent["host"] == sent["device"]
    left = found["host"].report.transferred["device->host"] - found["device"].report.transferred["device->host"]
    assert found["nvme"].peak_memory["nvme"] - found["host"].peak_memory["nvme"] >= left - max(
        int(found["nvme"].graph.size[found["nvme"].graph.value(f"x{k}")]) for k in range(5)
    )
