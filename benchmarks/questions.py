"""What the questions that take many solves answer within the limits that people give: curves and minimum budgets.

Each row names a question, the minimum budget that the answer reports with what is proved of it, the number of points of
the curve, and its first and last point. `python -m benchmarks.questions NAME ...` asks some of them only.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import remat
from benchmarks.harness import table
from remat.generate import generate

Row = tuple[str, str, str]


def graph_of_tasks() -> dict[str, Any]:
    """Return a random graph of 60 tasks, in bytes."""
    return dict(generate("dag", "random", nodes=60, seed=7))


def tree_of_tensors(leaves: int = 30, seed: int = 3) -> dict[str, Any]:
    """Return a contraction tree as a graph: each tensor is read once."""
    draw = random.Random(seed)
    tasks: list[dict[str, Any]] = [
        {"id": f"t{k}", "time": 1, "size": draw.choice((16, 64, 128, 512)), "reads": []} for k in range(leaves)
    ]
    open_ones = [task["id"] for task in tasks]
    while len(open_ones) > 1:
        pair = [open_ones.pop(draw.randrange(len(open_ones))) for _ in range(2)]
        name = f"t{len(tasks)}"
        tasks.append({"id": name, "time": draw.randint(1, 9), "size": draw.choice((8, 64, 256, 2048)), "reads": pair})
        open_ones.append(name)
    units = {"time": "unit", "memory": "unit"}
    return {"schema": "remat.instance/1", "kind": "dag", "units": units, "tasks": tasks, "outputs": open_ones}


def unequal_chain(length: int = 30, seed: int = 5) -> dict[str, Any]:
    """Return a chain of unequal stages, in bytes and seconds."""
    draw = random.Random(seed)
    stages = [
        {
            "forward_time": draw.uniform(1e-3, 2e-2),
            "backward_time": draw.uniform(2e-3, 4e-2),
            "output_size": draw.randint(10**7, 3 * 10**8),
            "saved_size": draw.randint(3 * 10**8, 10**9),
        }
        for _ in range(length)
    ]
    units = {"time": "s", "memory": "B"}
    return {"schema": "remat.instance/1", "kind": "chain", "units": units, "input_size": 10**7, "stages": stages}


def swept(instance: Any, limit: float, points: int | None = 6) -> Row:
    """Return what a sweep says."""
    curve = remat.sweep(instance, points=points, time_limit=limit).curves[0]
    least = curve.least
    text = "" if least is None else f"{least.size:,} ({least.proved_within or 'not proved'})"
    ends = [f"{point.peak:,}: {100 * (point.overhead or 0):+.2f} %" for point in curve.points]
    return text, str(len(curve.points)), "  ".join(ends)


def asked(instance: Any, limit: float, **question: Any) -> Row:
    """Return what the minimum budget for a time is."""
    found = remat.least_budget(instance, time_limit=limit, **question)
    answer = found.answer
    assert answer is not None
    what = (
        f"proved for {answer.scope}" if answer.proved else f"bound {answer.bound:,}" if answer.bound else "not proved"
    )
    overhead = f"{100 * (found.overhead or 0):+.2f} %"
    return ("none" if answer.value is None else f"{answer.value:,} ({what})"), found.algorithm, overhead


def refused(instance: Any, limit: float, budget: str) -> Row:
    """Return the minimum budget that an infeasible answer names."""
    found = remat.solve(instance, budget=budget, time_limit=limit)
    least = found.least_budget
    text = "" if least is None else f"{least.size:,} ({least.scope}, {'works' if least.sufficient else 'bound'})"
    return text, str(found.status), ""


QUESTIONS: dict[str, Any] = {
    "tree, no overhead, 20 s": lambda: asked(tree_of_tensors(), 20, max_overhead=0),
    "chain of 30, 10 %, 20 s": lambda: asked(unequal_chain(), 20, max_overhead="10%"),
    "mixtral_layer, 40 %, 20 s": lambda: refused(remat.example("mixtral_layer"), 20, "40%"),
    "random graph of 60, sweep, 10 s": lambda: swept(graph_of_tasks(), 10),
    "random graph of 60, 5 %, 20 s": lambda: asked(graph_of_tasks(), 20, max_overhead="5%"),
    "layered_n60_mixed, sweep, 15 s": lambda: swept(remat.example("layered_n60_mixed"), 15),
    "unet_joint, sweep, 15 s": lambda: swept(remat.example("unet_joint"), 15),
    "gpt2_small_step_host, sweep, 15 s": lambda: swept(remat.example("gpt2_small_step_host"), 15),
}


def main() -> None:
    """Ask all questions, or those whose names begin with one of the arguments, and print what they answer."""
    rows = []
    for name, question in QUESTIONS.items():
        if sys.argv[1:] and not any(name.startswith(prefix) for prefix in sys.argv[1:]):
            continue
        started = time.perf_counter()
        row = (name, *question(), f"{time.perf_counter() - started:.1f}")
        print(" | ".join(row), flush=True, file=sys.stderr)
        rows.append(row)
    table("Questions", ("question", "minimum budget", "points / by", "curve", "seconds"), rows)


if __name__ == "__main__":
    main()
