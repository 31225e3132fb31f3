"""The parts of the need of a pipeline are what its schedule holds at the peak, replayed by an oracle."""

from __future__ import annotations

import random

import pytest

import remat
from tests.oracles.training_memory import OF_LETTER, recounted

ALGORITHMS = ("1f1b", "gpipe", "zb-h1", "interleaved-1f1b")


@pytest.mark.parametrize("seed", range(12))
def test_the_largest_cause_is_that_of_the_schedule(seed: int) -> None:
    draw = random.Random(seed)
    devices = draw.choice([2, 3])
    step = remat.pipeline(
        forward_time=[draw.randint(1, 4) for _ in range(2 * devices)],
        backward_time=2,
        weight_time=1,
        output_size=draw.randint(1, 9),
        saved_size=draw.choice([2, 10, 40]),
        parameter_size=draw.choice([1, 20, 60]),
        optimizer_size=draw.choice([0, 30, 90]),
        forward_workspace=draw.choice([0, 7]),
        devices=devices,
        micro_batches=2 * devices,
        memory=1,
        time_unit="unit",
        size_unit="unit",
    )
    algorithm = ALGORITHMS[seed % len(ALGORITHMS)]
    result = remat.solve(step, algorithm=algorithm, budget="60%")
    found = result.shortfall
    assert found is not None
    if found.proved:  # a bound, not a schedule
        return
    fits = remat.solve(step, algorithm=algorithm, budget=found.budget[""])
    assert fits.report is not None
    assert fits.peak_memory[found.memory] == found.need == found.budget[""]
    told: dict[str, int] = {}
    graph = result.graph
    size = dict(zip(graph.values, graph.size.tolist(), strict=True))
    for part in found.parts:
        if part.what == "read":
            reads = graph.reads[found.task].tolist()
            for name in (graph.values[value] for value in reads):
                term = OF_LETTER.get(name[0], "activations")
                told[term] = told.get(term, 0) + size[name]
            assert part.size == sum(int(graph.size[value]) for value in reads)
        else:
            term = part.what if part.what in (*OF_LETTER.values(), "workspace") else "activations"
            told[term] = told.get(term, 0) + part.size
    assert told == recounted(fits, found.memory)
    assert all(name[0] not in OF_LETTER for part in found.parts if part.what.startswith("kept") for name in part.values)


def test_devices_of_one_capacity_are_listed_once() -> None:
    step = remat.pipeline(forward_time=[1] * 3, backward_time=2, output_size=1, devices=3, micro_batches=3, memory=9)
    few = remat.solve(step, algorithm="1f1b", budget=1).summary()
    assert few.count("capacity ") == 1
    assert "capacity        every device: 1 B\n" in few
    assert "gpu1: 1 B" not in few
    other = remat.solve(step, algorithm="1f1b", budget={"gpu0": 1, "gpu1": 2, "gpu2": 1}).summary()
    assert "gpu0: 1 B\n" in other
    assert "gpu1: 2 B\n" in other
