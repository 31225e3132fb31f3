"""Everything at once: `pipe-plan` on a profile of BERT with 32 layers, 8 devices, at five memories.

    REMAT_DATA=... python -m benchmarks.plan_table [--batches 16 32] [--memory 8 10 12 16 24] [--moves N] [--store FILE]

The profile is Piper's (Tarnawski et al. 2021), a file of `placement` in the folder of REMAT_DATA: times and bytes
without tensor or data parallelism. F takes a third of a layer's time, B and W as much; W keeps half of what the forward
saves; what crosses a cut goes at 25e9 bytes a second. A layer that runs again takes its forward's time.

Baselines are fixed: 1F1B with one stage a device, whose layers recompute as their position asks for (a dynamic program
over cuts and layers, after Sun et al. 2024), and the same with everything recomputed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Stopwatch, Store, table

AWARE = {
    16: {8: 3.4236, 10: 3.3828, 12: 3.3345, 16: 3.0646, 24: 2.8745},
    32: {8: 5.8799, 10: 5.8392, 12: 5.7592, 16: 5.3588, 24: 4.8743},
}
"""Seconds of position-aware 1F1B, by micro-batches and GiB."""

ALL = {16: 3.8281, 32: 6.4914}
"""Seconds of 1F1B that recomputes everything."""

PLANNERS = (
    "pipe-search",
    "dapple-plan",
    "varuna",
    "ftpipe",
    "pipedream-dp",
    "zb-v",
    "v-half",
    "v-min",
    "zb-h1",
    "1f1b",
)
CROSSING = 48_234_496
"""Bytes between two layers, there and back."""


def bert(batches: int, gib: float) -> dict[str, Any]:
    """Return the profile as a pipeline."""
    path = Path(os.environ["REMAT_DATA"]) / "placement" / "piper_bert32a100.json.gz"
    with gzip.open(path) as file:
        profile = json.load(file)
    nodes = {node["id"]: node for node in profile["nodes"]}
    sources: dict[int, list[int]] = {}
    for edge in profile["edges"]:
        sources.setdefault(edge["destId"], []).append(edge["sourceId"])
    order: list[int] = []
    while len(order) < len(nodes):
        left = nodes.keys() - set(order)
        order.append(min(node for node in left if left.isdisjoint(sources.get(node, []))))
    layers = [_layer(nodes[node]) for node in order if nodes[node]["name"] != "tensor"]
    layers[-1]["output_size"] = 0
    devices = {"name": "gpu", "count": 8, "memory": int(gib * 2**30)}
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "name": f"bert32_m{batches}",
        "units": {"time": "us"},
        "micro_batches": batches,
        "layers": layers,
        "cluster": {"devices": [devices], "levels": [{"bandwidth": "25GB/s"}]},
    }


def _layer(node: dict[str, Any]) -> dict[str, Any]:
    plain = node["TMPCs"]["1"][0]
    time, saved = round(plain["timePerSample"] * 1e6), int(plain["memoryUsageA"])
    layer = {
        "name": f"{node['name'].lower()}{node['id']}",
        "forward_time": time // 3,
        "backward_time": time // 3,
        "output_size": CROSSING,
        "saved_size": saved,
        "backward_reads": [],
        "parameter_size": int(plain["memoryUsageB"]),
        "parameter_gradient_size": 0,
    }
    halves = {"weight_time": time - 2 * (time // 3), "weight_saved_size": saved // 2}
    return layer | (halves if time else {})


def measure(batches: int, gib: float, moves: int) -> dict[str, Any]:
    """Plan one row, and ask single planners and rules with the same bytes."""
    document = bert(batches, gib)
    with Stopwatch() as watch:
        ours = remat.solve(document, algorithm="pipe-plan", options={"moves": moves})
    assert ours.report is not None
    assert ours.makespan is not None
    others: dict[str, float] = {}
    for name in PLANNERS:
        try:
            found = remat.solve(document, algorithm=name).makespan
        except remat.OptionError:
            continue
        if found is not None:
            others[name] = found / 1e6
    fits = all(peak.size <= gib * 2**30 for peak in ours.report.peaks.values())
    return {
        "ours": ours.makespan / 1e6,
        "bound": float(ours.lower_bound or 0) / 1e6,
        "fits": fits,
        "best": min(others.items(), key=lambda one: one[1], default=None),
        "cpu": watch.cpu,
    }


def main() -> None:
    """Read the command line; print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_table", description=__doc__)
    parser.add_argument("--batches", type=int, nargs="*", default=[16, 32])
    parser.add_argument("--memory", type=int, nargs="*", default=[8, 10, 12, 16, 24], help="GiB of a device")
    parser.add_argument("--moves", type=int, default=20_000)
    parser.add_argument("--store", type=Path, default=None, help="where measurements are kept")
    given = parser.parse_args()
    kept = Store.at(given.store)
    rows, aware, everything, gaps = [], [], [], []
    for batches in given.batches:
        for gib in given.memory:
            key = f"m={batches} {gib} GiB"
            if key not in kept.known:
                kept.add(key, measure(batches, gib, given.moves))
            entry = kept.known[key]
            ours, bound = entry["ours"], entry["bound"]
            aware.append(AWARE[batches][gib] / ours)
            everything.append(ALL[batches] / ours)
            gaps.append(1 - bound / ours)
            best = "-" if entry["best"] is None else f"{entry['best'][0]} {entry['best'][1]:.4f}"
            row = [key, f"{AWARE[batches][gib]:.4f}", f"{ALL[batches]:.4f}", best, f"{ours:.4f}", f"{aware[-1]:.3f}"]
            fits = "yes" if entry["fits"] else "NO"
            rows.append([*row, f"{bound:.4f}", f"{100 * gaps[-1]:.1f} %", fits, f"{entry['cpu']:.1f}"])
    header = ["", "1F1B, aware", "all again", "best single", "pipe-plan", "quicker", "bound", "gap", "fits", "CPU s"]
    table("BERT, 32 layers on 8 devices: seconds of a step", header, rows)
    mean, total = (math.exp(sum(map(math.log, ratios)) / len(ratios)) for ratios in (aware, everything))
    sys.stdout.write(
        f"geometric means: {mean:.3f} times as quick as position-aware 1F1B, {total:.3f} as all recomputed; "
        f"mean gap {100 * sum(gaps) / len(gaps):.1f} %\n"
    )


if __name__ == "__main__":
    main()
