"""Pipelines on devices that have one memory: what one device writes there, the others read without a transfer."""

import pytest

import remat
from remat.plugin import registry
from tests.fuzz.options import WORK
from tests.oracles import referee

LAYER = {"forward_time": 1, "backward_time": 2, "saved_size": 3, "output_size": 4, "parameter_size": 2}


def pipeline(devices=2, layers=2, cluster=None, update_time=0, **more):
    entry = {"devices": [{"name": "gpu", "count": devices}], **(cluster or {})}
    head = {"schema": "remat.instance/3", "kind": "pipeline", "units": {"time": "unit", "memory": "unit"}}
    layer = {**LAYER, "repeat": layers, "update_time": update_time}
    return {**head, "layers": [layer], "micro_batches": 2, "cluster": entry, **more}


def machine(memories, links=()):
    """Return devices gpu0, gpu1, ... in memories of these names."""
    return {
        "memories": [{"name": name} for name in dict.fromkeys(memories)],
        "processors": [{"name": f"gpu{k}", "memory": name, "type": "gpu"} for k, name in enumerate(memories)],
        "links": [{"source": one, "target": other, "latency": 1} for one, other in links],
    }


TOGETHER = machine(["m", "m"])
APART = machine(["m", "m", "n"], [("m", "n"), ("n", "m")])


@pytest.mark.parametrize(("name", "peak"), [("gpipe", 40), ("1f1b", 37)])
def test_two_devices_of_one_memory_by_hand(name, peak):
    # gpu0 runs F1.0 from 0, F1.1 from 1, then B1.0 and B1.1 until 9. Parameters and gradients take 8 bytes.
    # gpipe: gpu1 runs F2.0 from 1, F2.1 from 2, and B2.0 from 3, which writes 4 bytes beside the 28 of all forwards.
    # 1f1b: gpu1 runs F2.0 from 1, B2.0 from 2, F2.1 from 4, and B2.1 from 5, which writes 4 bytes. Then micro-batch 0
    # has x1, s1 and y1, 11 bytes, until B1.0 ends at 6; micro-batch 1 has 14.
    result = remat.solve(pipeline(), machine=TOGETHER, algorithm=name)
    assert result.makespan == 9
    assert result.report.peak_memory == {"m": peak}
    assert all(kind == 0 for kind in result.columns.kind)  # no copies


@pytest.mark.parametrize(("devices", "layers", "on"), [(2, 4, TOGETHER), (3, 6, APART)], ids=["one", "two"])
def test_both_referees_accept_what_algorithms_do_with_common_memories(devices, layers, on):
    answered, refusals = set(), []
    for changed in ({}, {"weights": "stash"}, {"weights": "double", "update_every": 4}):
        document = pipeline(devices, layers, **changed)
        for entry in registry.algorithms("pipeline", available=True):
            try:
                result = remat.solve(document, machine=on, algorithm=entry.name, options=WORK.get(entry.name, {}))
            except remat.OptionError as error:
                refusals.append(str(error))
                continue
            answered.add(entry.name)
            judged = referee.check({**document, "machine": on}, result.to_dict())
            assert judged.ok, (entry.name, judged.violations)
            assert judged.peaks == result.report.peak_memory, entry.name
    assert not [text for text in refusals if "no link" in text]
    assert {"gpipe", "ftpipe", "dapple-plan", "pipe-plan", "pipe-torch", "varuna", "madpipe"} <= answered


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (pipeline(cluster={"transfers": "blocking"}), "blocking transfers"),
        (pipeline(cluster={"transfers": "grouped"}), "grouped transfers"),
        (pipeline(update_time=1), "updates its own parameters"),
    ],
)
def test_what_is_about_devices_needs_a_memory_for_each(document, why):
    with pytest.raises(remat.OptionError, match=f"gpu0 and gpu1 have one memory, m.*{why}"):
        remat.solve(document, machine=TOGETHER, algorithm="gpipe")
