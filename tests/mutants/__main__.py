"""Do the tests notice a slip? ``python -m tests.mutants`` makes one at a time, and asks the module's own tests.

Each fault of `tests.mutants.faults` is put into a copy of the checkout, where the tests run that the fault names; a
fault that they let pass survives. The checkout itself is never written to. Nothing of this belongs to `make test`,
except that each fault must still fit the source (`test_faults.py`).
"""

import argparse
import fnmatch
import os
import queue
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests import places
from tests.mutants.fault import text_of
from tests.mutants.faults import EXPLAINED, FAULTS

COPIED = ("solver", "algorithms", "tests", "pyproject.toml")
"""Copied paths; all others of the checkout are linked."""

LEFT_OUT = (".*", "build", "dist", "htmlcov")

LIMIT = 180
"""Seconds after which tests that have not ended count as failed."""

PYTEST = (
    *("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"),
    *("--tb=no", "-p", "tests.mutants.quick"),
)
BLAME = re.compile(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", re.MULTILINE)


class Unusable(Exception):
    """The run gives no evidence about the tests."""


@dataclass(frozen=True)
class Verdict:
    """The result of one run of tests.

    Attributes
    ----------
    passed : bool
    by : str
        The test that failed, or what else ended the run.
    seconds : float
    """

    passed: bool
    by: str
    seconds: float


class Workshop:
    """Copies of the checkout, one for each fault that is tried at the same time.

    Parameters
    ----------
    folder : Path
        Empty.
    copies : int
    """

    def __init__(self, folder, copies):
        self.free = queue.SimpleQueue()
        for number in range(copies):
            self.free.put(_copied(folder / str(number)))

    def judge(self, tests, fault=None):
        """Run tests on a copy, with a fault in it or without; return a `Verdict`."""
        copy = self.free.get()
        try:
            if fault is None:
                return _run(copy, tests)
            path = copy / fault.file
            right = path.read_text(encoding="utf-8")
            # The compiled file goes by size and second, and either may be that of the spoilt one.
            shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
            path.write_text(fault.applied_to(right), encoding="utf-8")
            try:
                return _run(copy, tests)
            finally:
                path.write_text(right, encoding="utf-8")
        finally:
            self.free.put(copy)


def _copied(target):
    target.mkdir()
    for entry in sorted(places.ROOT.iterdir()):
        if any(fnmatch.fnmatch(entry.name, pattern) for pattern in LEFT_OUT):
            continue
        if entry.name not in COPIED:
            (target / entry.name).symlink_to(entry)
        elif entry.is_dir():
            shutil.copytree(entry, target / entry.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(entry, target / entry.name)
    packages = [str(target / "solver"), str(target / "algorithms")]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True)
    # An environment's own copy of the package, or its link to the checkout, must not come first.
    found = subprocess.run(
        [sys.executable, "-c", "import remat, remat_algorithms as zoo; print(remat.__file__, zoo.__file__)"],
        cwd=target,
        env=_environment(target),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if not all(Path(file).is_relative_to(target) for file in found):
        raise Unusable(f"the tests would import {' and '.join(found)}, not the copies in {target}")
    return target


def _environment(copy):
    path = os.pathsep.join((str(copy / "solver"), str(copy / "algorithms")))
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""}


def _run(copy, tests):
    shutil.rmtree(copy / ".hypothesis", ignore_errors=True)  # no examples from one fault to the next
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *PYTEST, *tests],
        cwd=copy,
        env=_environment(copy),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT)
        code = process.returncode
    except subprocess.TimeoutExpired:
        code = None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    seconds = time.monotonic() - begun
    if code is None:
        return Verdict(False, f"the time limit of {LIMIT} s", seconds)
    blamed = BLAME.search(output)
    if code == 0:
        return Verdict(True, "", seconds)
    if code < 0:
        return Verdict(False, f"signal {-code}", seconds)
    if code in (1, 2) and blamed:
        return Verdict(False, blamed[1], seconds)
    raise Unusable(f"pytest ended with {code}:\n{output[-2000:]}")


def _chosen(patterns):
    """Return the faults whose names contain, or match, one of the patterns; all of them without patterns."""
    wanted = [f"*{pattern}*" for pattern in patterns]
    return [fault for fault in FAULTS if not wanted or any(fnmatch.fnmatchcase(fault.name, one) for one in wanted)]


def _try_all(faults, workshop, jobs):
    """Return the names of the survivors, after a line for each fault."""
    selections = list(dict.fromkeys(fault.tests for fault in faults))
    survivors = []
    pool = ThreadPoolExecutor(jobs)
    try:
        for tests, verdict in zip(selections, pool.map(workshop.judge, selections), strict=True):
            print(f"unspoilt  {verdict.seconds:5.1f} s  {' '.join(tests)}", flush=True)
            if not verdict.passed:
                raise Unusable(f"the tests fail without any fault: {verdict.by}")
        verdicts = pool.map(lambda fault: workshop.judge(fault.tests, fault), faults)
        for fault, verdict in zip(faults, verdicts, strict=True):
            fate = "SURVIVED" if verdict.passed else "killed"
            print(f"{fate:8}  {verdict.seconds:5.1f} s  {fault.name}", flush=True)
            if verdict.passed:
                survivors.append(fault.name)
                print(f"{'':19}{EXPLAINED.get(fault.name, 'nobody noticed')}", flush=True)
            else:
                print(f"{'':19}by {verdict.by}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    return survivors


def main():
    """Try the chosen faults; exit with 1 for unexplained survivors, with 2 without a verdict."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="faults whose names contain it")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="faults at a time (default 2)")
    parser.add_argument("--list", action="store_true", help="print the faults, and try none")
    given = parser.parse_args()
    faults = _chosen(given.only)
    if given.list:
        print(*(fault.name for fault in faults), sep="\n")
        return 0
    begun = time.monotonic()
    try:
        for fault in faults:
            fault.applied_to(text_of(fault.file))
        with tempfile.TemporaryDirectory(prefix="remat-mutants-") as folder:
            survivors = _try_all(faults, Workshop(Path(folder), given.jobs), given.jobs)
    except (Unusable, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes, cpu = (time.monotonic() - begun) / 60, (usage.ru_utime + usage.ru_stime) / 60
    print(f"killed {len(faults) - len(survivors)} of {len(faults)} in {minutes:.1f} minutes ({cpu:.1f} of CPU)")
    return int(not set(survivors) <= set(EXPLAINED))


if __name__ == "__main__":
    sys.exit(main())
