"""Exit codes: `remat solve` and `remat verify`, in this process."""

import contextlib
import io
import json
import math
import tempfile
from pathlib import Path

from remat.cli.main import main
from tests.fuzz.verdicts import Finding

CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "unknown": 4}
"""The exit code of each status."""

REFUSED, VIOLATED = 2, 6


def command_line_findings(case, answers, rng):
    """Yield findings where the command line ends otherwise than the library answers."""
    asked = [g for g in answers if (g.refusal or g.result is not None) and not g.findings and not g.solve.options]
    if not asked:
        return
    given = rng.choice(asked)
    if given.result is not None and given.limited:
        return
    with tempfile.TemporaryDirectory() as folder:
        instance, schedule = Path(folder) / "instance.json", Path(folder) / "schedule.json"
        instance.write_text(json.dumps(case.document), encoding="utf-8")
        arguments = ["solve", str(instance), "-a", given.solve.algorithm, "--seed", str(given.solve.seed)]
        arguments += ["-o", str(schedule), *_budget(given.solve.budget)]
        machine = []
        if given.solve.machine is not None:
            (Path(folder) / "machine.json").write_text(json.dumps(given.solve.machine), encoding="utf-8")
            machine = ["--machine", str(Path(folder) / "machine.json")]
        arguments += machine
        code, printed = _run(arguments)
        wanted = REFUSED if given.result is None else CODES[str(given.result.status)]
        if code != wanted:
            yield _finding(given, f"exit code {code}, not {wanted}: {printed}")
        elif code == 0:
            code, printed = _run(["verify", str(instance), str(schedule), *machine, *_budget(given.solve.budget)])
            if code != 0:
                yield _finding(given, f"verify exits with {code}: {printed}")


def _budget(budget):
    listed = budget.items() if isinstance(budget, dict) else [("", budget)]
    for memory, size in listed:
        if size is not None and not math.isinf(size):
            yield from ("-b", f"{memory}={size}" if memory else str(size))


def _finding(given, message):
    return Finding("command-line", given.solve.algorithm, message, (given.solve,))


def _run(arguments):
    """Return the exit code, and the last line on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as error:
            code = error.code
    return code, (err.getvalue().strip().splitlines() or [""])[-1][:200]
