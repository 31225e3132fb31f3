"""Recomputation and offloading together on chains: `remat-offload-best` against the zoo, and the gap that it prints.

Drawn chains with links of several bandwidths and latencies, full and half duplex: on how many of them each other
algorithm finds a quicker schedule, all of them asked for recomputation where they have the choice. Then the shipped
chains with a host at several bandwidths, at budgets between the least one and the peak without recomputation: what is
found, what is proved, and by what.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import remat
from benchmarks.chain_table import FOLDER
from benchmarks.harness import Measurement, measure, table
from benchmarks.hosts import host
from benchmarks.offload_gap import chain as drawn_chain
from benchmarks.offload_gap import machine as drawn_machine
from remat.plugin.registry import algorithms

OURS = "remat-offload-best"

ASIDE = (OURS, "dag-offload-best", "fixed")
"""Not compared: itself, the one for all task graphs, and what the user has to name."""

OPTIONS: dict[str, dict[str, Any]] = {"offload-exact": {"recompute": True}}

BANDWIDTHS = (4, 12, 25, 64)
"""GB/s each way."""

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Of the way from the minimum budget to the peak without recomputation."""

EXACT = 3
"""Stages up to which `offload-exact` is asked."""


def drawn(seed: int, most: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Draw a chain, a machine, and a budget between the need of single runs and the peak."""
    draw = random.Random(seed)
    instance, where = drawn_chain(draw, draw.randint(2, most)), drawn_machine(draw)
    latency = draw.choice([0, 0, 1, 2])
    for link in where["links"]:  # type: ignore[attr-defined]
        link["latency"] = latency
    peak = remat.solve(instance, algorithm="keep-all", machine=where).peak_memory["device"]
    least = remat.solve(instance, algorithm="offload-greedy", machine=where, budget={"device": 0}).least_budget
    low = peak if least is None else least.size
    return instance, where, {"device": low + draw.randint(0, max(0, peak - low - 1))}


def against_zoo(first: int, count: int, most: int, seconds: float) -> list[list[str]]:
    """Compare on so many drawn chains."""
    others = [entry.name for entry in algorithms() if entry.accepts("chain") and entry.name not in ASIDE]
    rows = {name: [0, 0, 0] for name in others}
    worst: dict[str, list[tuple[float, int]]] = {name: [] for name in others}
    gaps = []
    for seed in range(first, first + count):
        instance, where, budget = drawn(seed, most)
        given: dict[str, Any] = {"machine": where, "budget": budget}
        ours = remat.solve(instance, algorithm=OURS, **given)
        gaps.append(100.0 if ours.gap is None else 100 * ours.gap)
        for name in others:
            if name == "offload-exact" and len(instance["stages"]) > EXACT:
                continue
            try:
                other = remat.solve(
                    instance, algorithm=name, options=OPTIONS.get(name, {}), time_limit=seconds, **given
                )
            except remat.RematError:
                continue
            if other.makespan is None:
                continue
            rows[name][0] += 1
            if ours.makespan is None or other.makespan < ours.makespan * (1 - 1e-9):
                rows[name][1] += 1
                worst[name].append((1e9 if ours.makespan is None else ours.makespan / other.makespan, seed))
            elif other.makespan > ours.makespan * (1 + 1e-9):
                rows[name][2] += 1
    sys.stdout.write(f"\ngap of {OURS}: median {statistics.median(gaps):.3f} %, 0 on {sum(g == 0 for g in gaps)}\n")
    return [
        [name, *(str(figure) for figure in row), ", ".join(f"{r:.3f} (seed {s})" for r, s in sorted(worst[name])[-3:])]
        for name, row in rows.items()
        if row[0]
    ]


def solved(path: str, bandwidth: float, share: float, algorithm: str, options: dict[str, Any]) -> dict[str, Any]:
    """Solve one chain; in a process of its own."""
    instance, where = remat.load(Path(path)), host(bandwidth)
    try:
        keep = remat.solve(instance, algorithm="keep-all", machine=where)
        least = remat.solve(instance, algorithm="offload-greedy", machine=where, budget={"device": 1}).least_budget
        assert least is not None
        budget = {"device": int(least.size + share * (keep.peak_memory["device"] - least.size))}
        result = remat.solve(instance, algorithm=algorithm, machine=where, budget=budget, options=options)
    except remat.RematError as error:
        return {"says": str(error)}
    once = keep.makespan
    assert once is not None
    sources = [bound.source for bound in result.bounds if bound.value == result.lower_bound]
    return {
        "over": None if result.makespan is None else 100 * (result.makespan / once - 1),
        "bound": None if result.lower_bound is None else 100 * (result.lower_bound / once - 1),
        "gap": None if result.gap is None else 100 * result.gap,
        "source": sources[0] if sources else "-",
    }


def shipped(bandwidths: tuple[float, ...], algorithm: str, options: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield the rows of the shipped chains whose times are seconds, and that the algorithm takes."""
    for path in sorted(FOLDER.glob("*.json")):
        for bandwidth in bandwidths:
            for share in SHARES:
                given = {"bandwidth": bandwidth, "share": share, "algorithm": algorithm, "options": options}
                measured: Measurement = measure(solved, path=str(path), **given)
                if "says" in measured.value:
                    break
                figures = measured.value
                row = [path.stem, bandwidth, share, *(_per_cent(figures[key]) for key in ("over", "bound", "gap"))]
                yield [*row, figures["source"], f"{measured.cpu:.1f}"]


def _per_cent(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 3) + 0.0:.3f}"


def run(
    count: int = 200,
    most: int = 6,
    seconds: float = 3,
    algorithm: str = OURS,
    bandwidths: tuple[float, ...] = BANDWIDTHS,
    iterations: int | None = None,
) -> None:
    """Print both tables."""
    if count:
        header = ["algorithm", "answers", "quicker", "slower", "worst"]
        table(f"Drawn chains with links: others beside {OURS}", header, against_zoo(0, count, most, seconds))
    rows = list(shipped(bandwidths, algorithm, {} if iterations is None else {"iterations": iterations}))
    header = ["chain", "GB/s", "share", "over %", "bound %", "gap %", "bound by", "CPU s"]
    table(f"Shipped chains with a host: {algorithm}", header, rows)
    for bandwidth in bandwidths:
        gaps = [float(row[5]) for row in rows if row[1] == bandwidth and row[5] != "-"]
        if gaps:
            median = statistics.median(gaps)
            sys.stdout.write(f"\n{bandwidth:g} GB/s: median gap {median:.3f} %, worst {max(gaps):.3f} %\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--most", type=int, default=6, help="stages of drawn chains")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--algorithm", default=OURS)
    parser.add_argument("--bandwidths", type=float, nargs="*", default=BANDWIDTHS)
    parser.add_argument("--iterations", type=int, help="rounds of the walk on shipped chains")
    arguments = parser.parse_args()
    from benchmarks import chain_offload  # by its name, under which the measuring processes find it

    chain_offload.run(
        arguments.count,
        arguments.most,
        arguments.seconds,
        arguments.algorithm,
        tuple(arguments.bandwidths),
        arguments.iterations,
    )
