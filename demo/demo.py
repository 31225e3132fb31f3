"""Solve a real network at three budgets, verify the schedules, compare them: ``make demo``.

Leaves in the given folder, for each budget, a schedule (JSON), a picture (SVG) and a trace for Perfetto or
chrome://tracing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import remat
from remat.report.plot.schedule import plot
from remat.report.trace import write_trace
from remat.units import format_size, format_time

NETWORK = "gpt2s_b8_s1024_flash"
BUDGETS = ("3.5GiB", "5GiB", "7GiB")


def main(folder: Path) -> int:
    """Run the demonstration; return the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    instance = remat.example(NETWORK)
    facts = remat.show(instance)
    out = sys.stdout.write
    out(f"{NETWORK}: one training step of GPT-2 small, batch 8, 1024 tokens, as traced\n")
    everything = remat.solve(instance, algorithm="store-all")
    memory = everything.machine.memories[0].name
    whole = everything.peak_memory[memory]
    out(f"without recomputation: {format_time(facts.no_recompute_time)} and {format_size(whole, both=True)}\n\n")
    header = f"{'budget':>8}  {'peak':>10}  {'time':>10}  {'overhead':>8}  {'verified':>8}  status\n"
    out(header + "-" * len(header) + "\n")
    for budget in BUDGETS:
        result = remat.solve(instance, budget=budget)
        path = folder / f"{NETWORK}_{budget}.json"
        result.save(path)
        report = remat.verify(instance, path)
        plot(result, path.with_suffix(".svg"))
        write_trace(result, path.with_suffix(".trace.json"))
        if not report.ok or result.makespan is None or result.overhead is None:
            out(f"{budget:>8}  {result.status}\n")
            return 1
        peak = format_size(report.peak_memory[memory])
        time = format_time(report.makespan)
        status = f"{result.status}, optimal within {result.optimal_within}" if result.optimal_within else result.status
        out(f"{budget:>8}  {peak:>10}  {time:>10}  {result.overhead:>+8.1%}  {'ok':>8}  {status}\n")
    out(f"\nschedules, pictures and traces: {folder}/\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo")))
