"""Predicted against measured step time, with measured costs: five networks whose steps take more than a second.

    <python with torch> -m benchmarks.torch_predicted [--networks gpt2 llama bert resnet densenet] [--rounds 7]
        [--store build/torch_predicted.json]

One thread; process CPU time of forward and backward. Each network runs without recomputation and at a budget halfway
between that peak and the smallest peak that a quick search finds. The prediction is the makespan of the verified
schedule; the measurement is the median of the rounds, after three steps that fill the allocator's memory. The store has
the rows that are done.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import table
from benchmarks.torch_networks import compiler_of

NETWORKS = ("gpt2", "llama", "bert", "resnet", "densenet")
WARM = 3


def network(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a network whose step takes more than a second on one thread."""
    models: Any = import_module("tests.torch.models")
    networks: Any = import_module("benchmarks.torch_networks")
    if name == "llama":
        module, (ids, labels) = networks.network("llama")
        return module, (ids.repeat(3, 1), labels.repeat(3, 1))
    if name == "bert":
        module, args, _ = models.make(
            lambda: models.bert_base(
                batch=8, length=256, hidden_size=384, num_hidden_layers=4, num_attention_heads=6,
                intermediate_size=1536, vocab_size=1000,
            )
        )  # fmt: skip
        return module, args
    return import_module("benchmarks.torch_times").network(name)  # type: ignore[no-any-return]


def measured(planned: Any, args: tuple[Any, ...], rounds: int) -> float:
    """Return the median CPU time of steps."""
    taken = []
    for number in range(WARM + rounds):
        planned.zero_grad(set_to_none=True)
        begin = time.process_time()
        planned(*args).backward()
        if number >= WARM:
            taken.append(time.process_time() - begin)
    return median(taken)


def rows_of(name: str, rounds: int) -> list[dict[str, Any]]:
    """Measure one network."""
    face: Any = import_module("remat.torch")
    module, args = network(name)
    captured = face.capture(module, *args)
    costs = face.profile(captured)
    planning: Any = import_module("remat.bridges.torch.planning")
    whole = planning.make_plan(captured, face.Choices(costs=costs)).peak
    instance = captured.instance(costs, static=sum(planning.split_of(captured, face.Choices()).values()))
    found = planning.search_least(instance, face.Choices(costs=costs))
    least = whole // 2 if found.columns is None else found.peak_memory["memory"]
    rows = []
    for label, budget in (("no recomputation", None), ("halfway", (whole + least) // 2)):
        planned = face.compile(module, budget, costs=costs, algorithm="dag-auto", time_limit=20)
        seconds = measured(planned, args, rounds)
        plan = planned.plan
        rows.append(
            {
                "network": name, "budget": label, "peak": plan.peak, "overhead": plan.overhead,
                "predicted": plan.schedule["makespan"] / 1e6, "measured": seconds,
            }
        )  # fmt: skip
    return rows


def main() -> None:
    """Measure what the store does not have, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_predicted")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--store", type=Path, default=Path("build/torch_predicted.json"))
    given = parser.parse_args()
    compiler_of()
    rows: list[dict[str, Any]] = json.loads(given.store.read_text()) if given.store.exists() else []
    for name in given.networks:
        if all(row["network"] != name for row in rows):
            rows += rows_of(name, given.rounds)
            given.store.parent.mkdir(parents=True, exist_ok=True)
            given.store.write_text(json.dumps(rows, indent=1) + "\n")
    cells = [
        (
            row["network"], row["budget"], f"{row['peak'] / 1e6:.0f} MB", f"{row['overhead']:.1%}",
            f"{row['predicted']:.3f} s", f"{row['measured']:.3f} s", f"{row['predicted'] / row['measured'] - 1:+.1%}",
        )
        for row in rows
    ]  # fmt: skip
    table(
        "Predicted and measured",
        ("network", "budget", "peak", "recomputation", "predicted", "measured", "difference"),
        cells,
    )


if __name__ == "__main__":
    main()
