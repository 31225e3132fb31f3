"""Fuzz the readers: ``python -m tests.fuzz.readers --seconds 600``; exit code 1 where there are findings."""

import argparse
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.readers.targets import MODULES

GRACE = 300
"""Seconds after its time at which a target's process is ended: a document makes it hang."""


def main(arguments=None):
    chosen = _parse(arguments)
    if chosen.inside:
        return _inside(chosen)
    if chosen.again:
        return _again(chosen)
    guided = not chosen.plain and find_spec("atheris") is not None
    how = "guided by coverage" if guided else "drawn from a seed" + ("" if chosen.plain else "; atheris is missing")
    print(f"seed {chosen.seed}, {how}", flush=True)
    reports = [_outside(name, chosen) for name in chosen.target or MODULES]
    print(f"{'target':16} {'documents':>10} {'refused':>10} {'per second':>10}  findings")
    for report in reports:
        speed = report["documents"] / max(report["seconds"], 0.1)
        figures = f"{report['documents']:10,} {report['refused']:10,} {speed:10,.0f}"
        print(f"{report['target']:16} {figures}  {len(report['findings'])}")
    print(f"{sum(report['documents'] for report in reports):,} documents")
    return 1 if any(report["findings"] for report in reports) else 0


def _parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.readers", description=sys.modules[__name__].__doc__)
    parser.add_argument("--seconds", type=float, help="for each target (default: 60, without --documents)")
    parser.add_argument("--documents", type=int, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", default=[], choices=list(MODULES), help="only these")
    parser.add_argument("--plain", action="store_true", help="without coverage, even where atheris is installed")
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz/readers"), help="where findings are written")
    parser.add_argument("--again", type=Path, metavar="FILE", help="read one document again, with one --target")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.seconds is None and chosen.documents is None:
        chosen.seconds = 60.0
    return chosen


def _outside(name, chosen):
    """Run a target in a separate process; return its figures."""
    command = [sys.executable, "-m", "tests.fuzz.readers", "--inside", "--target", name, "--seed", str(chosen.seed)]
    command += ["--findings", str(chosen.findings)]
    for flag in ("seconds", "documents"):
        if (value := getattr(chosen, flag)) is not None:
            command += [f"--{flag}", str(value)]
    command += ["--plain"] if chosen.plain else []
    most = None if chosen.seconds is None else chosen.seconds + GRACE
    chosen.findings.mkdir(parents=True, exist_ok=True)
    (chosen.findings / f"{name}.figures").unlink(missing_ok=True)
    try:
        with (chosen.findings / f"{name}.log").open("wb") as log:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, timeout=most, check=False)
        out, died = done.stdout, f"the process ended with code {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        out, died = (error.stdout or b"").decode(), "a document makes the process hang"
    *shown, last = out.splitlines() or [""]
    report = {"target": name, "documents": 0, "refused": 0, "seconds": 0.0, "findings": {}}
    figures = chosen.findings / f"{name}.figures"
    if last.startswith("{"):
        report = json.loads(last)
    else:
        shown.append(last)
        report = json.loads(figures.read_text("utf-8")) if figures.exists() else report
        died = died or "the process ended without a report"
    if died:
        report["findings"][died] = 1
        shown.append(f"{name}: {died}; see {name}.current and {name}.log in {chosen.findings}")
    if any(shown):
        print("\n".join(shown), flush=True)
    return report


def _inside(chosen):
    """Run targets one after the other in this process; print the report of each on a line."""
    from tests.fuzz.readers import running

    for name in chosen.target:
        guided = not chosen.plain and running.instrumented(name)
        run = running.Run(name, seconds=chosen.seconds, documents=chosen.documents, folder=chosen.findings)
        if guided:
            running.run_guided(run, chosen.seed, chosen.findings / "corpus" / name)
        print(json.dumps(running.run_plainly(run, chosen.seed)), flush=True)
    return 0


def _again(chosen):
    """Reread a finding's document."""
    from tests.fuzz.readers.judging import Judge
    from tests.fuzz.readers.targets import target

    (name,) = chosen.target
    found = Judge(target(name))(chosen.again.read_bytes())
    print("no finding" if found is None else f"{found.cause}: {found.text}")
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main())
