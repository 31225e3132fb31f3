"""A planner that cuts a model over devices, and asks `rotor` what each segment costs within its device's memory.

python examples/cut_over_devices.py [--devices 3] [--memory 600MB]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cache

import numpy as np

import remat


@dataclass(frozen=True)
class Model:
    """Profiled columns of a model, one entry for each layer."""

    forward: np.ndarray
    backward: np.ndarray
    output: np.ndarray
    saved: np.ndarray
    input_size: int

    def segment(self, first: int, end: int) -> remat.ChainInstance:
        """Return layers first..end-1 as a chain."""
        own = slice(first, end)
        return remat.chain(
            forward_time=self.forward[own],
            backward_time=self.backward[own],
            output_size=self.output[own],
            saved_size=self.saved[own],
            input_size=int(self.output[first - 1]) if first else self.input_size,
            time_unit="us",
        )


def cut(model: Model, devices: int, memory: str) -> list[tuple[int, int, remat.Result]]:
    """Return the segments whose slowest one is as quick as possible; each fits into a device's memory."""

    @cache
    def solved(first: int, end: int) -> remat.Result:
        return remat.solve(model.segment(first, end), algorithm="rotor", budget=memory)

    @cache
    def best(first: int, left: int) -> tuple[float, tuple[int, ...]]:
        """Return the time of the slowest segment from a layer on, and the ends of all segments."""
        if left == 1:
            time = solved(first, len(model.forward)).makespan
            return (float("inf") if time is None else time), (len(model.forward),)
        found: tuple[float, tuple[int, ...]] = (float("inf"), ())
        for end in range(first + 1, len(model.forward) - left + 2):
            time = solved(first, end).makespan
            if time is None or time >= found[0]:
                break  # longer segments need more memory and more time
            rest, ends = best(end, left - 1)
            found = min(found, (max(time, rest), (end, *ends)))
        return found

    slowest, ends = best(0, devices)
    if slowest == float("inf"):
        raise SystemExit(f"{devices} devices of {memory} are too small: give more of them, or more memory")
    starts = (0, *ends[:-1])
    return [(first, end, solved(first, end)) for first, end in zip(starts, ends, strict=True)]


def main() -> None:
    """Cut a model of 24 layers whose activations shrink."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=3)
    parser.add_argument("--memory", default="600MB")
    asked = parser.parse_args()
    layer = np.arange(24)
    model = Model(
        forward=900 + 40 * layer,
        backward=1800 + 80 * layer,
        output=(64_000_000 * 0.93**layer).astype(np.int64),
        saved=(150_000_000 * 0.93**layer).astype(np.int64),
        input_size=40_000_000,
    )
    for device, (first, end, result) in enumerate(cut(model, asked.devices, asked.memory)):
        again = [row.stage + first for row in result.stage_decisions if row.decision == "recomputed"]
        peak = max(result.peak_memory.values()) / 1e6
        print(f"device {device}: layers {first}-{end - 1}, {result.makespan} us, {peak:.0f} MB, recomputes {again}")


if __name__ == "__main__":
    main()
