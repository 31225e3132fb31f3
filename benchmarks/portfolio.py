"""Does `auto` keep its promise? With T seconds it loses at most .2 % to any algorithm alone with T / 2 seconds.

    python -m benchmarks.portfolio [--seconds 8] [--count 15] [--seed 0] [--forms FORM ...] [--store FILE]

Instances have ordinary sizes: 20 to 5,000 steps, stages, tasks or nodes, pipelines of 2 to 16 devices. Every algorithm
that accepts an instance solves it, and so does `auto`; the clock of a solve is its CPU time (`benchmarks.time_limits`).
The table has one row for each form: instances, losses above .2 %, the worst loss, and who won. With `--store` each
measurement is appended to a file, and not taken again.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.drawn import FORMS, Draw
from benchmarks.harness import Store, table
from benchmarks.time_limits import CpuClock, measured, preload

SIZES = (20, 30, 60, 100, 250, 600, 1500, 5000)
PIPELINES = ((4, 2, 4), (8, 4, 6), (12, 4, 16), (24, 8, 24), (32, 16, 32))

ADMITTED = 0.002
"""Share by which `auto` may be slower than another algorithm."""


def losses(form: str, seconds: float, count: int, seed: int, store: Store) -> list[dict[str, Any]]:
    """Return for each instance what `auto` found, the best of the others, and the loss."""
    import remat

    found = []
    for number in range(seed, seed + count):
        case = FORMS[form](Draw(f"portfolio/{form}/{number}", SIZES, PIPELINES))
        best, winner = None, ""
        for name in ("auto", *(entry.name for entry in remat.algorithms(case.document["kind"], available=True))):
            limit = seconds if name == "auto" else seconds / 2
            key = f"{form}/{number} {name} {limit:g}"
            if key not in store.known:
                store.add(key, measured(case, name, limit))
            answer = store.known[key]
            makespan = answer.get("makespan")
            if name == "auto":
                own = answer
            elif makespan is not None and (best is None or makespan < best):
                best, winner = makespan, name
        mine = own.get("makespan")
        if best is None:
            loss = 0.0
        elif mine is None:
            loss = 0.0 if own["status"] == "optimal" else float("inf")
        else:
            loss = mine / best - 1 if best else 0.0
        found.append({"instance": f"{form}/{number}", "auto": mine, "best": best, "winner": winner, "loss": loss})
    return found


def main() -> None:
    """Print a row for each form, and each loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--store", type=Path)
    chosen = parser.parse_args()
    CpuClock().install()
    preload()
    store = Store.at(chosen.store)
    rows, lost = [], []
    for form in chosen.forms:
        found = losses(form, chosen.seconds, chosen.count, chosen.seed, store)
        beaten = [entry for entry in found if entry["loss"] > ADMITTED]
        worst = max((entry["loss"] for entry in found), default=0.0)
        winners = Counter(entry["winner"] for entry in beaten)
        rows.append([form, len(found), len(beaten), f"{worst:.1%}", ", ".join(f"{k} {v}" for k, v in winners.items())])
        lost += beaten
        table("auto against every algorithm", ["form", "instances", "losses", "worst", "won by"], [rows[-1]])
    table("all forms", ["form", "instances", "losses", "worst", "won by"], rows)
    table(
        "losses",
        ["instance", "auto", "best", "by", "loss"],
        [[one["instance"], one["auto"], one["best"], one["winner"], f"{one['loss']:.1%}"] for one in lost],
    )


if __name__ == "__main__":
    main()
