"""Test the conversion of layer graphs for accelerators and CPUs to streams; errors name the path."""

import copy

import pytest

import remat
from remat.bridges.placement_profiles.partitioning import import_partitioning, import_split
from remat.errors import InstanceError
from remat.solving.verifying import examine


def node(number, cpu, accelerator, size, colour, **more):
    return {
        "id": number, "name": f"n{number}", "supportedOnFpga": 1, "cpuLatency": cpu, "fpgaLatency": accelerator,
        "isBackwardNode": 0, "colorClass": colour, "size": size,
    } | more  # fmt: skip


def edge(source, target, cost, size):
    return {"sourceId": source, "destId": target, "cost": cost, "size": size}


PROFILE = {
    "maxSizePerFPGA": 100,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [node(1, 30, 3, 60, 1), node(2, 40, 4, 30, 2), node(3, 20, 5, 30, 1), node(4, 1, 9, 1, 4)],
    "edges": [edge(1, 2, 0.5, 5), edge(1, 3, 0.5, 5), edge(2, 3, 1, 10), edge(3, 4, 2, 40)],
}
SPLIT = {"fpgas": [{"nodes": [1, 3]}, {"nodes": [2]}], "cpus": [{"nodes": [4]}]}


def test_what_a_profile_becomes():
    imported = import_partitioning(PROFILE)
    instance = imported.instance
    assert (instance.kind, instance.stream, instance.units.time) == ("dag", 8, "ms")
    assert [task.time for task in instance.tasks] == [
        {"cpu": 30, "accelerator": 3},
        {"cpu": 40, "accelerator": 4},
        {"cpu": 20, "accelerator": 5},
        {"cpu": 1, "accelerator": 9},
    ]
    assert [task.reads for task in instance.tasks] == [
        ("in1",), ("in2", "out1"), ("in1", "out1", "out2"), ("in4", "out3")
    ]  # fmt: skip
    sizes = {value.id: value.size for value in instance.values}
    # One edge has bytes in another proportion to its time than the others: the time counts.
    assert sizes == {"in1": 90, "in2": 30, "in4": 1, "out1": 5, "out2": 10, "out3": 20}
    assert "bytes of 1 of 3 outputs" in imported.notes[0]
    assert {link.bandwidth for link in instance.machine.links} == {10}
    assert [link.channel for link in instance.machine.links] == ["accelerator0"] * 2 + ["accelerator1"] * 2


def test_a_split_becomes_a_schedule():
    """Accelerator 0 sends outputs 1 and 3, fetches 2; accelerator 1 fetches 1, sends 2."""
    imported = import_partitioning(PROFILE, memory=200)
    found = import_split(imported, SPLIT)
    assert not found.notes
    examined = examine(imported.instance, found.schedule)
    assert examined.report.ok
    assert examined.report.steady.time_per_sample == (3 + 5) + 0.5 + 1 + 2
    assert examined.report.steady.busy["accelerator1"] == 4 + 0.5 + 1
    best = remat.solve(imported.instance, algorithm="tarnawski-ip")
    assert best.makespan <= examined.report.steady.time_per_sample


def test_how_many_there_are_may_be_said():
    machine = import_partitioning(PROFILE, accelerators=3, cpus=0, memory="1GB", samples=2).instance.machine
    assert [processor.type for processor in machine.processors] == ["accelerator"] * 3
    assert [memory.capacity for memory in machine.memories] == [None, *[10**9] * 3]


def spoilt(change):
    document = copy.deepcopy(PROFILE)
    change(document)
    return document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("nodes"), r"\$\.nodes: expected a list of objects"),
        (lambda d: d["nodes"][1].update(id=1), r"\$\.nodes\[1\]\.id: a second node 1"),
        (lambda d: d["nodes"][0].pop("cpuLatency"), r"nodes\[0\]\.cpuLatency: .*the key is missing"),
        (lambda d: d["nodes"][0].update(fpgaLatency=-1), r"nodes\[0\]\.fpgaLatency: -1 is out of range"),
        (lambda d: d["nodes"][0].update(colorClass=1.5), r"nodes\[0\]\.colorClass: expected a whole number"),
        (lambda d: d["edges"][0].update(destId=9), r"edges\[0\]\.destId: no node 9"),
        (lambda d: d["edges"][1].update(cost=7), r"edges\[1\]\.cost: 7 ms, and another edge from node 1 takes 0\.5"),
        (lambda d: d.update(maxFPGAs=0, maxCPUs=0), "neither an accelerator nor a CPU"),
        (lambda d: d["nodes"].clear() or d["edges"].clear(), "a profile without nodes"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    with pytest.raises(InstanceError, match=message):
        import_partitioning(spoilt(change))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"fpgas": [{"nodes": [1, 1]}]}, "node 1 is listed twice"),
        ({"fpgas": [{"nodes": [7]}]}, "no node 7"),
        ({"fpgas": [{"nodes": [1]}]}, "node 2 and its colour class are on no device"),
        ({"fpgas": [{}, {}, {"nodes": [1]}]}, "expected a list of nodes"),
        ({"fpgas": [{"nodes": []}, {"nodes": []}, {"nodes": [1, 2, 3, 4]}]}, "there are 2 of these"),
    ],
)
def test_what_is_wrong_with_a_split_is_named(split, message):
    with pytest.raises(InstanceError, match=message):
        import_split(import_partitioning(PROFILE), split)
