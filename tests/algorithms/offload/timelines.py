"""Instances of five stages, and a comparison of start times with hand-computed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import remat


def chain_of(stages: Sequence[tuple[str, int, int, int]], input_size: int, **more: Any) -> dict[str, Any]:
    """Build a chain from (name, forward time, backward time, output size)."""
    return {
        "schema": "remat.instance/1",
        "kind": "chain",
        "units": {"time": "unit", "memory": "unit"},
        "input_size": input_size,
        "stages": [
            {"name": name, "forward_time": forward, "backward_time": backward, "output_size": size}
            for name, forward, backward, size in stages
        ],
    } | more


FIVE = chain_of(
    [("conv1", 2, 4, 6), ("relu1", 1, 2, 6), ("conv2", 3, 6, 2), ("pool", 1, 1, 3), ("conv3", 2, 5, 2)], input_size=4
)
"""Two kinds of stages, with inputs of 4, 6, 6, 2, 3; the loss takes no time."""


def starts(result: remat.Result) -> list[tuple[float, str]]:
    """List the steps of a schedule as (start, what), in order: ``F1``, ``x1 out``, ``x1 back``, ``drop x1``."""
    found = []
    for step in result.to_dict()["steps"]:
        if "run" in step:
            what = step["run"]
        elif "copy" in step:
            what = f"{step['copy']} {'out' if step['from'] == 'device' else 'back'}"
        else:
            what = f"drop {' '.join(step['drop'])}"
        found.append((step["start"], what))
    return sorted(found)


def timeline(text: str) -> list[tuple[float, str]]:
    """Read a timeline written as lines of ``start  step, step``."""
    lines = [line.split(None, 1) for line in text.strip().splitlines()]
    return sorted((float(start), what.strip()) for start, steps in lines for what in steps.split(","))


EQUAL = chain_of([(f"stage{k}", 1, 2, 4) for k in range(1, 6)], input_size=4)
"""Five equal stages: with everything kept, runs hold 8 12 16 20 24 | 28 | 32 28 24 20 16 (the loss between)."""
