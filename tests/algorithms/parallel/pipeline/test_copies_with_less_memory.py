"""Two copies of the layers in opposite directions, with offloading and with recomputation: before both judges."""

from __future__ import annotations

import random
from typing import Any

import pytest

import remat
from tests.oracles import referee
from tests.seeds import seeds


def drawn(seed: int, *, host: bool) -> dict[str, Any]:
    draw = random.Random(f"copies {seed}")
    count, devices = draw.choice([(2, 2), (4, 2), (4, 4), (6, 2)])
    layers = [
        {"forward_time": draw.randint(1, 4), "backward_time": draw.randint(1, 6), "output_size": draw.randint(1, 4)}
        | {"saved_size": draw.randint(2, 9), "parameter_size": draw.randint(0, 2)}
        for _ in range(count)
    ]
    cluster: dict[str, Any] = {"devices": [{"name": "gpu", "count": devices}], "levels": [{"bandwidth": 5}]}
    if host:
        cluster["host"] = {"bandwidth": draw.choice([3, 8])}
    document = {"schema": "remat.instance/3", "kind": "pipeline", "units": {"time": "unit", "memory": "unit"}}
    return document | {"layers": layers, "cluster": cluster, "micro_batches": draw.choice([3, 4, 5]), "copies": 2}


def answer(document: dict[str, Any], algorithm: str, budget: int | None, **options: Any) -> remat.Result:
    options = {"placement": "bidirectional", "moves": 100} | options
    result = remat.solve(document, algorithm=algorithm, budget=budget, options=options)
    if result.makespan is not None:
        verdict = referee.check(document, result.to_dict())
        assert verdict.ok, verdict.violations
        assert verdict.makespan == pytest.approx(result.makespan, rel=1e-9)
    return result


def on_devices(result: remat.Result) -> int:
    return max(size for memory, size in result.peak_memory.items() if memory != "host")


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_a_host_is_never_worse(seed: int) -> None:
    without, document = drawn(seed, host=False), drawn(seed, host=True)
    budget = on_devices(answer(without, "pipe-search", None)) * 3 // 4
    plain, hosted = answer(without, "pipe-search", budget), answer(document, "pipe-search", budget)
    if plain.makespan is not None:
        assert hosted.makespan is not None
        assert hosted.makespan <= plain.makespan * (1 + 1e-9)


@pytest.mark.parametrize("seed", seeds(1, 40))
@pytest.mark.parametrize("host", [False, True])
def test_recomputation_is_never_worse(seed: int, host: bool) -> None:
    document = drawn(seed, host=host)
    budget = on_devices(answer(document, "pipe-plan", None)) * 3 // 4
    kept, free = (answer(document, "pipe-plan", budget, recompute=what) for what in ("none", "any"))
    if kept.makespan is not None:
        assert free.makespan is not None
        assert free.makespan <= kept.makespan * (1 + 1e-9)


def equal(host: bool) -> dict[str, Any]:
    """Four layers of 1 and 2 time units, each with 4 bytes for its backward; two devices with two copies."""
    layer = {"forward_time": 1, "backward_time": 2, "output_size": 1, "saved_size": 4, "repeat": 4}
    cluster: dict[str, Any] = {"devices": [{"name": "gpu", "count": 2}], "levels": [{"bandwidth": 8}]}
    if host:
        cluster["host"] = {"bandwidth": 8}
    document = {"schema": "remat.instance/3", "kind": "pipeline", "units": {"time": "unit", "memory": "unit"}}
    return document | {"layers": [layer], "cluster": cluster, "micro_batches": 4, "copies": 2}


def test_a_host_lets_both_directions_run() -> None:
    """A stage keeps 10 bytes: 14 fit one micro-batch at a time, 12 none; the host takes what waits."""
    alone, hosted = answer(equal(False), "pipe-search", 14), answer(equal(True), "pipe-search", 14)
    assert alone.makespan is not None
    assert hosted.makespan is not None
    assert hosted.makespan < 0.8 * alone.makespan
    assert answer(equal(False), "pipe-search", 12).makespan is None


def test_recomputation_in_both_directions() -> None:
    """With 12 bytes, both copies recompute."""
    result = answer(equal(False), "pipe-plan", 12, zoo=False)
    assert result.makespan is not None
    assert result.report is not None
    assert result.report.recompute_time > 0
    assert answer(equal(False), "pipe-plan", 12, recompute="none", zoo=False).makespan is None
