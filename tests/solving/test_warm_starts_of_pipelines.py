"""Warm starts of pipelines: schedules by orders."""

from __future__ import annotations

from pathlib import Path

import pytest

import remat
from remat.errors import OptionError

PIPELINE = remat.pipeline(
    devices=4,
    micro_batches=8,
    forward_time=[3] * 8,
    backward_time=[5] * 8,
    output_size=[2] * 7 + [0],
    saved_size=[4, 5, 6, 4, 5, 6, 4, 5],
)


def solve(algorithm: str, **given: object) -> remat.Result:
    return remat.solve(PIPELINE, algorithm=algorithm, **given)  # type: ignore[arg-type]


def test_the_answer_for_a_smaller_budget_is_kept_if_nothing_better_is_found(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    small = solve("pipe-search", options={"moves": 300})
    small.save(path)
    slow = solve("gpipe")
    assert small.makespan is not None
    assert slow.makespan is not None
    assert small.makespan < slow.makespan
    for given in (small, str(path), small.to_dict()):
        found = solve("gpipe", warm_start=given)
        assert found.makespan == small.makespan
        assert found.orders == small.orders
        assert found.algorithm == "warm start"
    assert solve("1f1b", warm_start=slow).makespan == solve("1f1b").makespan


def test_what_does_not_fit_is_noted() -> None:
    wide = solve("gpipe")
    fullest = max(wide.peak_memory.values())
    found = solve("1f1b", budget=fullest - 1, warm_start=wide)
    assert any("the warm start does not fit: it needs" in note for note in found.notes)
    assert found.makespan == solve("1f1b", budget=fullest - 1).makespan


def test_orders_that_break_rules_are_refused() -> None:
    document = solve("1f1b").to_dict()
    first = next(iter(document["orders"]))
    document["orders"][first] = document["orders"][first][:-1]
    with pytest.raises(OptionError, match="warm_start: "):
        solve("gpipe", warm_start=document)
