"""Ctrl-C at drawn moments, and scripts that end right after a solve: what comes of them.

    python -m benchmarks.interrupts [--count 60] [--exits 100] [--busy 4] [--seed 1] [--only NAME ...]

Half of the interrupts are sent to `remat solve`, half to a Python planner that calls `remat.solve` and then goes on.
One is answered where the process ends with exit code 0 and an answer that says `interrupted` (or that was finished), or
with 130 where there was no schedule, within two seconds: of wall time, or of its own CPU beside busy processes. A
script is right where it ends with exit code 0.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import table

LIMIT = 20.0
"""Time limit of an interrupted solve."""

LOADED = 6
"""What it is multiplied by where the machine has other work."""

ALLOWED = 2.0
"""Seconds within which an interrupt is answered."""

LATEST = 4.0
"""Latest moment of an interrupt, in seconds from the start."""

EARLY = 0.05
"""Earliest one: what was over before counts as such."""

PATIENCE = 60.0
"""Seconds after which a process that was interrupted is killed."""

CASES: dict[str, tuple[str, str]] = {
    "dag-auto": ("resnet50", "70%"),
    "moccasin": ("resnet50", "70%"),
    "checkmate": ("resnet50", "70%"),
    "offload-exact": ("small", "70%"),
    "chain-best": ("resnet101", "60%"),
    "adjoint-best": ("adjoint", ""),
    "auto": ("resnet50", "70%"),
}
"""Of each algorithm: the instance, and its budget."""

SCRIPTS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("checkmate", "training", "70%", {}),
    ("checkmate", "training", "70%", {"solver": "highs"}),
    ("checkmate", "training", "70%", {"solver": "cp-sat"}),
    ("checkmate-lp", "training", "70%", {}),
    ("moccasin", "training", "70%", {}),
    ("dag-auto", "training", "70%", {}),
    ("offload-exact", "small", "70%", {}),
    ("poet", "resnet50", "70%", {}),
)
"""Of each kind of script: algorithm, instance, budget and options."""

PLANNER = """
import json, sys
import remat
given = json.loads(sys.argv[1])
instance, solve = remat.load(given["path"]), remat.solve
budget = given["budget"]
if budget:
    whole = max(solve(instance, algorithm="keep-all", budget={"": None}).peak_memory.values())
    budget = whole * int(budget.rstrip("%")) // 100
print("begun", flush=True)
result = solve(
    instance, algorithm=given["algorithm"], budget=budget or None, options=given["options"],
    time_limit=given["limit"], threads=given["threads"],
)
found = result.makespan is not None
print(json.dumps({"status": result.status, "termination": result.termination, "found": found}), flush=True)
"""


COMMAND = """
from remat.cli.main import main
print("begun", flush=True)
raise SystemExit(main())
"""
"""The command line, which says when it is in charge: before, an interrupt is the interpreter's."""


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    code: int
    wall: float
    cpu: float
    answer: dict[str, Any]
    errors: str
    sent: bool = True

    @property
    def word(self) -> str:
        """What it says."""
        if not self.sent:
            return "over before"
        if self.code < 0 or self.code not in (0, 4, 130):
            return f"exit {self.code}"
        if self.code == 130:
            return "130"
        how = str(self.answer.get("termination", "no answer"))
        return how if self.answer.get("found") else f"{how}, nothing found"

    def right(self, by_cpu: bool) -> bool:
        """Whether it kept the schedule, said why, and took no longer than allowed."""
        told = self.answer.get("termination") in ("interrupted", "completed", "iteration limit")
        # Exit code 4: interrupted without a schedule.
        kept = not self.sent or self.code == 130 or (self.code in (0, 4) and told)
        return kept and (min(self.cpu, self.wall) if by_cpu else self.wall) <= ALLOWED


def instances(folder: Path) -> dict[str, str]:
    """Write the instances; return their paths by name."""
    import remat
    from remat.generate import generate

    shipped = remat.examples()
    paths = {"resnet50": shipped["chains/resnet50_b32_224"], "resnet101": shipped["chains/resnet101_b64_224"]}
    paths["adjoint"] = shipped["adjoint/three_levels_n500"]
    made = {
        "training": generate("dag", "mlp", layers=33),
        "small": _small(generate("chain", "random", length=12, seed=3)),
    }
    for name, document in made.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        paths[name] = path
    return {name: str(path) for name, path in paths.items()}


def _small(document: dict[str, Any]) -> dict[str, Any]:
    """Give a chain a host, linked both ways."""
    machine = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [
            {"source": source, "target": target, "bandwidth": 10.0}
            for source, target in (("device", "host"), ("host", "device"))
        ],
    }
    return document | {"machine": machine}


@contextmanager
def busy_beside(count: int) -> Iterator[None]:
    """Run busy processes; end them, and only them."""
    loop = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**6))"
    processes = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / float(os.sysconf("SC_CLK_TCK"))
    return 0.0


def _wait(process: subprocess.Popen[str], seconds: float) -> float:
    """Wait for the end of a process, and kill it if there is none; return its CPU seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_utime + usage.ru_stime
        time.sleep(0.01)
    process.kill()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def interrupted(given: dict[str, Any], moment: float, *, planner: bool, by_cpu: bool, folder: Path) -> Ending:
    """Send an interrupt at a moment, of the wall or of its own CPU, from where the work begins."""
    saved, out, errors = (folder / name for name in ("saved.json", "out.txt", "errors.txt"))
    saved.unlink(missing_ok=True)
    if planner:
        command = [sys.executable, "-c", PLANNER, json.dumps(given)]
    else:
        command = [sys.executable, "-c", COMMAND, "solve", given["path"], "-a", given["algorithm"]]
        command += ["--time-limit", str(given["limit"]), "-o", str(saved), "--quiet"]
        command += ["-b", given["budget"]] if given["budget"] else []
    with out.open("w", encoding="utf-8") as output, errors.open("w", encoding="utf-8") as messages:
        process = subprocess.Popen(command, stdout=output, stderr=messages, text=True)
        while process.poll() is None and "begun" not in out.read_text(encoding="utf-8"):
            time.sleep(0.01)
        begun = time.monotonic()
        start = _cpu(process.pid)
        while process.poll() is None and (_cpu(process.pid) - start if by_cpu else time.monotonic() - begun) < moment:
            time.sleep(0.01)
        sent = process.poll() is None
        before, began = _cpu(process.pid), time.monotonic()
        if not sent:
            return Ending(process.returncode or 0, 0.0, 0.0, {}, "", sent=False)
        process.send_signal(signal.SIGINT)
        cpu = _wait(process, PATIENCE) - before
    wall = time.monotonic() - began
    answer: dict[str, Any] = {}
    with suppress(OSError, ValueError, IndexError):
        if planner:
            answer = json.loads(out.read_text(encoding="utf-8").splitlines()[-1])
        else:
            document = json.loads(saved.read_text(encoding="utf-8"))
            answer = {"termination": document["termination"], "found": bool(document.get("steps"))}
    if planner and answer and process.returncode == -signal.SIGINT:
        sent = False  # it had ended, and the interpreter was on its way out
    return Ending(process.returncode or 0, wall, cpu, answer, errors.read_text(encoding="utf-8"), sent)


def interrupts(count: int, seed: int, by_cpu: bool, only: Sequence[str], folder: Path) -> None:
    """Print what comes of interrupts at drawn moments."""
    rng, paths = random.Random(seed), instances(folder)
    names = [name for name in CASES if not only or name in only]
    endings: dict[tuple[str, str], list[Ending]] = {}
    trials = 0
    while trials < count:
        name, planner = names[trials % len(names)], trials // len(names) % 2 == 1
        case, budget = CASES[name]
        given = {"path": paths[case], "algorithm": name, "budget": budget}
        given |= {"options": {}, "limit": LIMIT * (LOADED if by_cpu else 1), "threads": 1}
        moment = rng.uniform(EARLY, LATEST)
        ending = interrupted(given, moment, planner=planner, by_cpu=by_cpu, folder=folder)
        while not ending.sent and moment > EARLY:  # it was over before
            moment /= 2
            ending = interrupted(given, moment, planner=planner, by_cpu=by_cpu, folder=folder)
        trials += 1
        endings.setdefault((name, "planner" if planner else "command"), []).append(ending)
        if not ending.right(by_cpu):
            sys.stdout.write(
                f"{name}, {'planner' if planner else 'command'}, at {moment:.2f} s: {ending.word}, "
                f"{ending.wall:.2f} s, CPU {ending.cpu:.2f} s: {ending.errors[-300:]}\n"
            )
            sys.stdout.flush()
    rows = []
    for (name, how), own in sorted(endings.items()):
        words = ", ".join(f"{word} {times}" for word, times in Counter(ending.word for ending in own).items())
        good = sum(ending.right(by_cpu) for ending in own)
        rows.append([name, how, f"{good} of {len(own)}", max(e.wall for e in own), max(e.cpu for e in own), words])
    good = sum(ending.right(by_cpu) for own in endings.values() for ending in own)
    rows.append(["all", "", f"{good} of {trials}", "", "", ""])
    table(f"Interrupts, seed {seed}", ["algorithm", "sent to", "right", "most wall s", "most CPU s", "answers"], rows)


def exits(count: int, seed: int, only: Sequence[str], folder: Path) -> None:
    """Print what comes of scripts that end right after a limited solve."""
    rng, paths = random.Random(seed), instances(folder)
    scripts = [script for script in SCRIPTS if not only or script[0] in only]
    codes: dict[str, Counter[str]] = {}
    for trial in range(count):
        algorithm, case, budget, options = scripts[trial % len(scripts)]
        given = {"path": paths[case], "algorithm": algorithm, "budget": budget, "options": options}
        given |= {"limit": rng.uniform(0.2, 3.0), "threads": 2}
        done = subprocess.run([sys.executable, "-c", PLANNER, json.dumps(given)], capture_output=True, text=True)
        label = algorithm + "".join(f" {key}={value}" for key, value in options.items())
        codes.setdefault(label, Counter())[str(done.returncode)] += 1
        if done.returncode:
            sys.stdout.write(f"{label}, limit {given['limit']:.2f} s: exit {done.returncode}: {done.stderr[-300:]}\n")
            sys.stdout.flush()
    good = sum(own["0"] for own in codes.values())
    rows = [[name, ", ".join(f"{code}: {times}" for code, times in own.items())] for name, own in codes.items()]
    table(f"Scripts that end after a solve, seed {seed}", ["algorithm", "exit codes"], [*rows, ["all", f"0: {good}"]])


def run(
    count: int = 60,
    scripts: int = 100,
    *,
    busy: int = 0,
    by_cpu: bool = False,
    seed: int | None = None,
    only: Sequence[str] = (),
) -> None:
    """Print both tables."""
    seed = random.randrange(10**6) if seed is None else seed
    with tempfile.TemporaryDirectory() as folder, busy_beside(busy):
        if count:
            interrupts(count, seed, by_cpu or busy > 0, only, Path(folder))
        if scripts:
            exits(scripts, seed, only, Path(folder))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.interrupts", description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="interrupts")
    parser.add_argument("--exits", type=int, default=100, help="scripts")
    parser.add_argument("--busy", type=int, default=0, help="busy processes beside")
    parser.add_argument("--by-cpu", action="store_true", help="look at CPU seconds: the machine has other work")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", nargs="*", default=[], help="algorithms")
    given = parser.parse_args()
    run(given.count, given.exits, busy=given.busy, by_cpu=given.by_cpu, seed=given.seed, only=given.only)


if __name__ == "__main__":
    main()
