"""Recomputation and copies to a host in one plan, against either alone, with the same bytes.

    python -m benchmarks.plan_hosts [--devices 4] [--layers 4] [--moves 6000]
    REMAT_DATA=... python -m benchmarks.plan_hosts --bert 12 16 20 [--memory 8]

Rows of the first are as those of `benchmarks.pipelines_host`, with four layers a device by default: F = B = W, 16
micro-batches, `trip` is how long a device's activations take to the host and back, by the time of its work, and memory
is a share of what 1F1B takes. Rows of the second are the profile of `benchmarks.plan_table` with a host behind each
device, at so many GB/s each way. `again` is `pipe-plan` without a host, `sent` is `pipe-search`, which runs nothing
again, `both` is `pipe-plan`; all figures are verified makespans. `better` is how much less time that takes than the
quicker one of the two. `again s` is what runs again in it, on all devices; `sent bytes` what goes to the host.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import remat
from benchmarks.harness import Stopwatch, table
from benchmarks.pipelines_host import SIZE, instance
from benchmarks.plan_table import bert

SHARES = (0.25, 0.375, 0.5)
TRIPS = (1, 2, 4)


def uniform(devices: int, layers: int) -> Iterator[tuple[str, dict[str, Any], int, float]]:
    """Yield rows of equal layers: name, instance, budget, unit of time."""
    for trip in TRIPS:
        for share in SHARES:
            document = instance(devices, trip)
            document["layers"][0]["repeat"] = layers * devices
            yield f"p={devices} trip {trip} {share:.1%}", document, int(share * devices * layers * SIZE), 1


def profile(speeds: list[int], gib: int) -> Iterator[tuple[str, dict[str, Any], int, float]]:
    """Yield rows of the profile."""
    for speed in speeds:
        document = bert(16, gib)
        document["cluster"]["host"] = {"bandwidth": f"{speed}GB/s"}
        yield f"BERT {gib} GiB, {speed} GB/s", document, gib * 2**30, 1e6


def measure(name: str, document: dict[str, Any], budget: int, unit: float, moves: int) -> list[object]:
    """Plan a row three times."""
    cluster = {key: value for key, value in document["cluster"].items() if key != "host"}
    how: dict[str, Any] = {"budget": budget, "options": {"moves": moves}}
    again = remat.solve(document | {"cluster": cluster}, algorithm="pipe-plan", **how).makespan
    sent = remat.solve(document, algorithm="pipe-search", **how).makespan
    with Stopwatch() as watch:
        both = remat.solve(document, algorithm="pipe-plan", **how)
    assert both.makespan is not None
    assert both.report is not None
    alone = [one for one in (again, sent) if one is not None]
    assert all(both.makespan <= one for one in alone)
    gone = sum(size for ends, size in both.report.transferred.items() if ends.endswith("->host"))
    better = f"{100 * (1 - both.makespan / min(alone)):.1f} %" if alone else "-"
    times = [f"{one / unit:.5g}" if one is not None else "-" for one in (again, sent, both.makespan)]
    rest = [f"{float(both.lower_bound or 0) / unit:.5g}", f"{both.report.recompute_time / unit:.3g}", f"{gone:.3g}"]
    return [name, *times, better, *rest, f"{watch.cpu:.1f}"]


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4, help="of a device")
    parser.add_argument("--moves", type=int, default=6_000)
    parser.add_argument("--bert", type=int, nargs="+", default=None, metavar="GB/s", help="the profile instead")
    parser.add_argument("--memory", type=int, default=8, help="GiB of a device, for the profile")
    given = parser.parse_args(arguments)
    listed = uniform(given.devices, given.layers) if given.bert is None else profile(given.bert, given.memory)
    head = ["", "again", "sent", "both", "better", "bound", "again s", "sent bytes", "CPU s"]
    table("recomputation and a host, together", head, [measure(*row, given.moves) for row in listed])
    return 0


if __name__ == "__main__":
    sys.exit(main())
