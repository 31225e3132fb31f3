"""How far the offloading heuristics are from the optimum, on random chains that `offload-exact` settles.

`offload-dp` and `offload-greedy` against the optimum without recomputation, `pofo` and `remat-offload-best` against the
one with it. Chains that are not settled in time are counted, and left out.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys

import remat
from benchmarks.harness import table

SETTINGS = (
    (False, ("offload-greedy", "offload-dp"), (3, 5)),
    (True, ("pofo", "remat-offload-best"), (2, 3)),
)


def chain(draw: random.Random, stages: int) -> dict[str, object]:
    """Draw a chain of small integer times and sizes."""
    listed = [
        {
            "forward_time": draw.randint(1, 6),
            "backward_time": draw.randint(1, 8),
            "output_size": draw.randint(1, 6),
            "saved_size": draw.choice([0, 0, 2, 5]),
        }
        for _ in range(stages)
    ]
    units = {"time": "unit", "memory": "unit"}
    return {"schema": "remat.instance/1", "kind": "chain", "units": units, "input_size": 3, "stages": listed}


def machine(draw: random.Random) -> dict[str, object]:
    """Draw a device and a host: full or half duplex, not always as quick each way."""
    channel = draw.choice([("out", "in"), ("out", "in"), ("bus", "bus")])
    ends = (("device", "host", channel[0]), ("host", "device", channel[1]))
    links = [
        {"source": source, "target": target, "channel": name, "bandwidth": draw.choice([1, 2, 4])}
        for source, target, name in ends
    ]
    processors = [{"name": "gpu", "memory": "device"}]
    return {"memories": [{"name": "device"}, {"name": "host"}], "processors": processors, "links": links}


def measure(count: int, seconds: float) -> list[list[str]]:
    """Compare on so many chains for each setting."""
    found = []
    for recompute, names, (fewest, most) in SETTINGS:
        ratios: dict[str, list[tuple[float, int]]] = {name: [] for name in names}
        unsettled = 0
        for seed in range(count):
            draw = random.Random(seed)
            instance, where = chain(draw, draw.randint(fewest, most)), machine(draw)
            peak = remat.solve(instance, algorithm="keep-all", machine=where).peak_memory["device"]
            least = remat.solve(instance, algorithm="offload-greedy", machine=where, budget={"device": 0}).least_budget
            low = peak if least is None else least.size
            budget = {"device": low + draw.randint(0, max(0, peak - low))}
            options = {"recompute": recompute, "copies": 1}
            exact = remat.solve(
                instance, algorithm="offload-exact", machine=where, budget=budget, options=options, time_limit=seconds
            )
            if exact.makespan is None or exact.optimal_within is None:
                unsettled += 1
                continue
            for name in names:
                more = {"iterations": 300} if name == "remat-offload-best" else {}
                result = remat.solve(instance, algorithm=name, machine=where, budget=budget, options=more)
                assert result.makespan is not None, "what offload-exact can, they can"
                ratios[name].append((result.makespan / exact.makespan, seed))
        for name, pairs in ratios.items():
            worst = sorted(pairs, reverse=True)[:3]
            mean = statistics.fmean(ratio for ratio, _ in pairs)
            equal = sum(ratio <= 1 + 1e-9 for ratio, _ in pairs)
            listed = ", ".join(f"{ratio:.3f} (seed {seed})" for ratio, seed in worst)
            settled = f"{len(pairs)} of {len(pairs) + unsettled}"
            found.append([name, f"{fewest}-{most}", settled, f"{mean:.4f}", f"{equal}", listed])
    return found


def run(count: int = 500, seconds: float = 10) -> None:
    """Print the table."""
    header = ["algorithm", "stages", "settled", "mean ratio", "equal", "worst"]
    table("Random small chains: makespan over the optimum of offload-exact", header, measure(count, seconds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    run(given.count, given.seconds)
    sys.stdout.flush()
