"""Recomputation and offloading together on task graphs: `dag-offload-best` against the optimum, and against the others.

Small graphs: the training graphs of three or four forward tasks, with links of several kinds, against `offload-exact`
(which `dag-offload-best` does not ask). Large ones: networks with a host at several bandwidths, at two budgets between
the least one (the proved one of this machine) and that of keeping everything; overheads and gaps in per cent.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Measurement, measure, table
from benchmarks.hosts import host
from benchmarks.offload_gap import machine as drawn_machine

BANDWIDTHS = (4, 12, 25, 64)
"""GB/s each way."""

SHARES = (0.5, 0.2)
"""Of the way from the minimum budget to the peak of keeping everything."""

OTHERS = ("dag-auto", "offload-greedy", "capuchin", "poet", "auto-perf-maxing")

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {"preset": "gpt2-small"}),
    "bert": ("transformer", {"preset": "bert-large"}),
    "densenet": ("densenet", {}),
    "lstm": ("lstm", {}),
    "resnet": ("resnet", {}),
}
"""Generated ones, beside the traced U-Net that ships."""


def small(draw: random.Random) -> dict[str, Any]:
    """Draw the training graph of three or four forward tasks, each reading one or two earlier outputs."""
    count = draw.randint(3, 4)
    tasks, values = [], [{"id": "x0", "size": draw.randint(1, 4)}]
    reads: list[list[str]] = []
    for k in range(1, count + 1):
        earlier = [f"x{j}" for j in range(k)]
        reads.append([earlier[-1], *([draw.choice(earlier[:-1])] if k > 1 and draw.random() < 0.4 else [])])
        saved = [f"s{k}"] if draw.random() < 0.4 else []
        values += [{"id": name, "size": draw.randint(1, 6)} for name in (f"x{k}", *saved)]
        tasks.append({"id": f"F{k}", "time": draw.randint(1, 6), "reads": reads[-1], "writes": [f"x{k}", *saved]})
    for k in range(count, 0, -1):
        values.append({"id": f"y{k - 1}", "size": draw.randint(1, 6)})
        saved = [value["id"] for value in values if value["id"] == f"s{k}"]
        own = [f"x{k}"] if draw.random() < 0.5 else []
        gradient = [f"y{k}"] if k < count else []
        read = [*dict.fromkeys([*reads[k - 1], *own, *saved, *gradient])]
        tasks.append({"id": f"B{k}", "time": draw.randint(1, 8), "reads": read, "writes": [f"y{k - 1}"]})
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "tasks": tasks,
        "values": values,
        "inputs": ["x0"],
        "outputs": ["y0"],
    }


def against_optimum(count: int, seconds: float) -> list[list[str]]:
    """Compare on drawn small graphs that `offload-exact` settles."""
    ratios: dict[str, list[tuple[float, int]]] = {"dag-offload-best": [], "capuchin": [], "auto": []}
    unsettled = 0
    for seed in range(count):
        draw = random.Random(seed)
        instance, where = small(draw), drawn_machine(draw)
        peak = remat.solve(instance, algorithm="keep-all", machine=where).peak_memory["device"]
        least = remat.solve(instance, algorithm="offload-greedy", machine=where, budget={"device": 0}).least_budget
        low = peak if least is None else least.size
        budget = {"device": low + draw.randint(0, max(0, peak - low))}
        options = {"recompute": True}
        given: dict[str, Any] = {"machine": where, "budget": budget}
        exact = remat.solve(instance, algorithm="offload-exact", options=options, time_limit=seconds, **given)
        if exact.makespan is None or exact.optimal_within is None:
            unsettled += 1
            continue
        for name, row in ratios.items():
            result = remat.solve(instance, algorithm=name, **given)
            if result.makespan is not None:
                row.append((result.makespan / exact.makespan, seed))
    rows = []
    for name, pairs in ratios.items():
        worst = ", ".join(f"{ratio:.3f} (seed {seed})" for ratio, seed in sorted(pairs, reverse=True)[:3])
        mean = statistics.fmean(ratio for ratio, _ in pairs)
        equal = sum(ratio <= 1 + 1e-9 for ratio, _ in pairs)
        rows.append([name, f"{len(pairs)} of {count} ({unsettled} not settled)", f"{mean:.4f}", f"{equal}", worst])
    return rows


def document(name: str) -> Any:
    """Return a network by its name."""
    if name == "unet":
        return remat.example("unet_joint")
    if name in NETWORKS:
        from remat.generate import generate

        family, given = NETWORKS[name]
        return remat.load(generate("dag", family, **given))
    return remat.load(Path(os.environ["REMAT_DATA"]) / name)


def solved(network: str, bandwidth: float, share: float, algorithm: str, seconds: float) -> dict[str, Any]:
    """Solve one network; in a process of its own."""
    instance, where = document(network), host(bandwidth)
    keep = remat.solve(instance, algorithm="keep-all", machine=where)
    peak, once = keep.peak_memory["device"], keep.makespan
    low = remat.solve(instance, algorithm="offload-greedy", machine=where, budget={"device": 1}).least_budget
    assert low is not None
    assert once is not None
    budget = {"device": int(low.size + share * (peak - low.size))}
    try:
        result = remat.solve(instance, algorithm=algorithm, machine=where, budget=budget, time_limit=seconds)
    except remat.RematError as error:
        return {"says": str(error)}
    return {
        "tasks": len(instance.tasks),
        "budget": budget["device"] / peak,
        "over": None if result.makespan is None else 100 * (result.makespan / once - 1),
        "bound": None if result.lower_bound is None else 100 * (result.lower_bound / once - 1),
        "gap": None if result.gap is None else 100 * result.gap,
    }


def networks(names: tuple[str, ...], seconds: float, others: bool) -> None:
    """Print the table of the large graphs."""
    rows, gaps = [], []
    for name in names:
        for bandwidth in BANDWIDTHS:
            for share in SHARES:
                row = [name, bandwidth, share]
                own = _measured(name, bandwidth, share, "dag-offload-best", seconds)
                gaps.append(own.value["gap"])
                row += [own.value["tasks"], f"{own.value['budget']:.2f}", _shown(own), _per_cent(own.value["bound"])]
                row += [_per_cent(own.value["gap"]), f"{own.cpu:.1f}"]
                if others:
                    row += [_shown(_measured(name, bandwidth, share, other, seconds)) for other in OTHERS]
                rows.append(row)
    header = ["network", "GB/s", "share", "tasks", "of the peak", "over %", "bound %", "gap %", "CPU s"]
    table(f"Recomputation and offloading, {seconds:g} s each", header + (list(OTHERS) if others else []), rows)
    known = sorted(gap for gap in gaps if gap is not None)
    for limit in (0.5, 0.1):
        sys.stdout.write(f"\ngap at most {limit} %: {sum(gap <= limit for gap in known)} of {len(gaps)}\n")


def _measured(network: str, bandwidth: float, share: float, algorithm: str, seconds: float) -> Measurement:
    given = {"bandwidth": bandwidth, "share": share, "algorithm": algorithm, "seconds": seconds}
    return measure(solved, network=network, **given)


def _shown(measured: Measurement) -> str:
    if "says" in measured.value:
        return "refuses"
    return _per_cent(measured.value["over"])


def _per_cent(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def run(count: int = 200, seconds: float = 10, others: bool = True, names: tuple[str, ...] = ()) -> None:
    """Print both tables."""
    if count:
        header = ["algorithm", "settled", "mean ratio", "equal", "worst"]
        table("Small drawn graphs: makespan over the optimum of offload-exact", header, against_optimum(count, seconds))
    networks(names or ("unet", *NETWORKS), seconds, others)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--no-others", dest="others", action="store_false")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    from benchmarks import dag_offload  # by its name, under which the measuring processes find it

    dag_offload.run(arguments.count, arguments.seconds, arguments.others, tuple(arguments.names))
