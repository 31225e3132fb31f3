"""Runs of solvers: Python keeps the interrupt, and solvers that ignore it are killed."""

from __future__ import annotations

import random
import re
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remat_algorithms
from remat.plugin import Context, OptionError
from remat_algorithms.kit.programs import solver_process, solvers
from remat_algorithms.kit.programs.cp_sat import CpSatJob, solve
from remat_algorithms.kit.programs.program import Program, ProgramBuilder
from remat_algorithms.kit.programs.pulp import find_solver, solve_with_pulp
from remat_algorithms.kit.programs.solver_process import Apart, Task
from remat_algorithms.kit.programs.solver_status import Outcome, watched
from remat_algorithms.kit.programs.solvers import job_of, may_be_deaf, solve_program

OWNERS = {f"kit/programs/{name}.py" for name in ("cp_sat", "solvers", "pulp", "relaxation", "duals")}

CALLS = r"\b(CpSolver|ModelSolverHelper|ModelSolver|CreateSolver|pywraplp|highspy|import pulp|scipy\.optimize)\b"
"""The calls of a solver."""


def small() -> Program:
    """Return a program whose least cost is 5.5: at (1, 3)."""
    builder = ProgramBuilder([1.0, 1.5], [0.0, 0.0], [5.0, 5.0], [True, True])
    builder.add_row([(0, 1.0), (1, 2.0)], lower=7.0)
    return builder.build()


def hard(rows: int = 5, columns: int = 40) -> ProgramBuilder:
    """Return a market split, which takes any solver long: rows of sums to be met from both sides."""
    rng = random.Random(1)
    builder = ProgramBuilder([1.0] * columns, [0.0] * columns, [1.0] * columns, [True] * columns)
    for _ in range(rows):
        factors = [float(rng.randrange(100)) for _ in range(columns)]
        half = float(sum(factors) // 2)
        builder.add_row(enumerate(factors), lower=half)
        builder.add_row(((column, -factor) for column, factor in enumerate(factors)), lower=-half)
    return builder


class Interrupting:
    """Sends an interrupt at the third query, and receives it."""

    def __init__(self) -> None:
        self.asked = self.heard = 0

    def __call__(self) -> bool:
        self.asked += 1
        if self.asked == 8:
            signal.raise_signal(signal.SIGINT)
        return self.heard > 0 or self.asked > 300

    def handle(self, *_: object) -> None:
        self.heard += 1


@pytest.fixture
def interrupting() -> Any:
    over = Interrupting()
    before = signal.signal(signal.SIGINT, over.handle)
    yield over
    assert signal.getsignal(signal.SIGINT) == over.handle
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("solver", ["scip", "cp-sat"])
def test_an_interrupt_is_pythons(solver: str, interrupting: Interrupting) -> None:
    before = threading.active_count()
    answer = watched(job_of(Task(hard().build(), solver, 1, 0, None, None)), interrupting)
    assert interrupting.heard == 1
    assert not answer.ended
    assert threading.active_count() == before


def test_an_interrupt_during_a_constraint_program_is_pythons(interrupting: Interrupting) -> None:
    answer = solve(hard(), seconds=None, stopped=interrupting)
    assert interrupting.heard == 1
    assert not answer.ended


@pytest.mark.parametrize("solver", ["highs", "pulp"])
def test_a_process_is_stopped_like_a_thread(solver: str, interrupting: Interrupting, monkeypatch: Any) -> None:
    monkeypatch.setattr(solver_process, "GRACE", 0.1)
    job = Apart(Task(hard().build(), solver, 1, 0, None, None))
    assert watched(job, interrupting).outcome in (Outcome.UNKNOWN, Outcome.FEASIBLE)
    assert interrupting.heard == 1
    assert not solver_process._idle


def test_a_deaf_process_is_killed(monkeypatch: Any) -> None:
    monkeypatch.setattr(solver_process, "GRACE", 0.05)
    monkeypatch.setattr(solver_process, "SERVICE", "tests.algorithms.kit.programs.deaf")
    solver_process._end_all()
    job = Apart(Task(small(), "scip", 1, 0, None, None))
    assert watched(job, lambda: job._process is not None).outcome is Outcome.UNKNOWN
    assert job._process is not None
    assert job._process._popen.returncode not in (None, 0)


def test_a_process_solves_program_after_program_and_is_replaced_when_it_has_ended() -> None:
    def answer(solver: str) -> tuple[Outcome, list[float]]:
        found = watched(Apart(Task(small(), solver, 1, 0, None, None)), lambda: False)
        return found.outcome, found.values

    assert answer("scip") == (Outcome.OPTIMAL, [1.0, 3.0])
    (first,) = solver_process._idle
    assert answer("pulp") == (Outcome.OPTIMAL, [1.0, 3.0])
    assert solver_process._idle == [first]
    first.kill()
    first._popen.wait()
    assert answer("highs") == (Outcome.OPTIMAL, [1.0, 3.0])
    assert solver_process._idle != [first]
    with pytest.raises(OptionError, match="NOSUCH"):
        answer("pulp:NOSUCH")
    solver_process._end_all()
    assert not solver_process._idle


def test_what_is_short_or_hears_is_solved_here(monkeypatch: Any) -> None:
    program = small()
    assert not any(may_be_deaf(program, name) for name in ("scip", "cp-sat", "glop"))
    assert not may_be_deaf(program.relaxed(), "highs")
    assert may_be_deaf(program, "highs")
    assert may_be_deaf(program, "pulp:CBC")
    monkeypatch.setattr(solvers, "MOST_ENTRIES_HERE", 1)
    assert all(may_be_deaf(program, name) for name in ("scip", "cp-sat", "glop"))


def test_a_limit_that_is_over_asks_nobody() -> None:
    assert solve_program(small(), "abacus", Context(), seconds=0).outcome is Outcome.UNKNOWN


def test_any_solver_of_pulp_proves_to_the_end(monkeypatch: Any) -> None:
    """The solver receives the settings that it supports, including the gap, whose default is 1e-4."""
    import pulp

    given = []

    class Own(pulp.PULP_CBC_CMD):  # type: ignore[misc]
        def __init__(self, msg: bool = True, timeLimit: float | None = None, gapRel: float | None = None) -> None:
            given.append((msg, timeLimit, gapRel))
            super().__init__(msg=msg, timeLimit=timeLimit, gapRel=gapRel)

    monkeypatch.setattr(pulp, "listSolvers", lambda *rest, **more: ["OWN"])
    monkeypatch.setattr(pulp, "getSolver", lambda name, **settings: Own(**settings))
    answer = solve_with_pulp(small(), find_solver("OWN", 99.0, 1, warm=False), None)
    assert (answer.outcome, answer.bound) == (Outcome.OPTIMAL, 5.5)
    assert np.array_equal(answer.values, [1.0, 3.0])
    assert given[-1] == (False, 99.0, 0.0)


def test_every_run_of_cp_sat_leaves_interrupts_alone() -> None:
    from ortools.sat.python import cp_model

    assert CpSatJob(cp_model.CpModel(), threads=1, seed=0, seconds=None).solver.parameters.catch_sigint_signal is False


def test_nobody_else_calls_a_solver() -> None:
    root = Path(remat_algorithms.__file__).parent
    callers = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(CALLS, path.read_text(encoding="utf-8"))
    }
    assert callers == OWNERS
