"""Solves for the suite: cached at a ladder of budgets, directly with a recording context, and in another process."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from remat.errors import OptionError
from remat.instance import Instance, load
from remat.plugin.context import Context
from remat.plugin.options import make_options
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Proposal, Termination
from remat.plugin.registry import Algorithm
from remat.schedule.orders import Orders
from remat.schedule.patterns import PeriodicSchedule
from remat.schedule.steps import Steps
from remat.solving.conclusion import conclude
from remat.solving.entry import solve
from remat.solving.problem_setup import make_problem
from remat.solving.result import Result
from remat.testing.checks import Rung, require
from remat.units import Number

Document = dict[str, Any]
Budgets = Mapping[str, int | None]
Incumbent = Steps | PeriodicSchedule

MOST_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class Refusal:
    """An instance or option that the algorithm rejects with an `OptionError`."""

    text: str


class Trials:
    """Solves with one algorithm and caches the answers, which the tests of a suite share."""

    def __init__(self, algorithm: str, time_limit: float) -> None:
        self.algorithm = algorithm
        self._limit = time_limit
        self._answers: dict[str, Result | Refusal] = {}
        self._problems: dict[str, Problem] = {}
        self._loaded: tuple[Document, Instance] | None = None

    def time_limit(self) -> float | None:
        """Return the time limit of one solve; only anytime algorithms get one."""
        from remat.plugin.registry import algorithms

        return self._limit if any(a.name == self.algorithm and a.anytime for a in algorithms()) else None

    def solve(self, document: Document, given: Mapping[str, Any], *, budgets: Budgets) -> Result | Refusal:
        """Solve, or return the cached answer."""
        key = json.dumps([document, dict(given), dict(budgets)], default=str)
        if key not in self._answers:
            if len(self._answers) >= MOST_REMEMBERED:
                self._answers.clear()
            self._answers[key] = self.solve_afresh(document, given, budgets=budgets)
        return self._answers[key]

    def solve_afresh(self, document: Document, given: Mapping[str, Any], *, budgets: Budgets) -> Result | Refusal:
        """Solve; only an `OptionError` with a message counts as a refusal."""
        try:
            return solve(
                self._instance(document),
                algorithm=self.algorithm,
                budget=budgets,
                options=given,
                time_limit=self.time_limit(),
            )
        except OptionError as error:
            require(len(str(error)) >= 10, f"a refusal says why, not merely {str(error)!r}")
            return Refusal(str(error))

    def _instance(self, document: Document) -> Instance:
        """Return the instance; repeated documents share one object."""
        if self._loaded is None or self._loaded[0] is not document:
            self._loaded = document, load(document)
        return self._loaded[1]

    def problem(self, document: Document) -> Problem:
        """Return the problem without a budget."""
        key = json.dumps(document, default=str)
        if key not in self._problems:
            if len(self._problems) >= MOST_REMEMBERED:
                self._problems.clear()
            self._problems[key] = make_problem(load(document))
        return self._problems[key]

    def memory_index(self, document: Document) -> int:
        """Return the index of the memory that a bare budget means."""
        return 1 if document.get("storage") else 0

    def memory_name(self, document: Document) -> str:
        """Return the name of the memory that a bare budget means."""
        return self.problem(document).machine.memories[self.memory_index(document)].name

    def budgets_of(self, document: Document, budget: int | None) -> Budgets:
        """Return a bare budget with the name of its memory."""
        return {self.memory_name(document): budget}

    def rungs(
        self,
        document: Document,
        given: Mapping[str, Any],
        *,
        shares: Sequence[int],
        edges: bool = True,
        nothing: bool = True,
    ) -> list[Rung] | Refusal:
        """Solve at several budgets, the smallest first.

        Parameters
        ----------
        document, given
            Instance and options.
        shares : sequence of int
            Percentages of the range from the memory bound to the algorithm's unlimited peak.
        edges : bool
            Whether to solve at the memory bound, at the unlimited peak, and at a byte less.
        nothing : bool
            Whether to solve at budget 0 too, if a byte less than the memory bound is more.

        Returns
        -------
        list of Rung or Refusal
            Around the memory bound, at the shares, at the peak of the answer without a budget, and without.
        """
        free = self.solve(document, given, budgets=self.budgets_of(document, None))
        low, high = self._extremes(document, free)
        sizes = {low - 1, *(low + (high - low) * share // 100 for share in shares)}
        sizes |= {low, high - 1, high} if edges else set()
        sizes |= {0} if nothing else set()
        answers = [
            (size, self.solve(document, given, budgets=self.budgets_of(document, size)))
            for size in sorted(sizes)
            if 0 <= size <= 2**62
        ]
        refused = [answer for _, answer in answers if isinstance(answer, Refusal)]
        if refused and (len(refused) == len(answers)):
            return refused[0]
        require(not refused, f"accepted at some budgets, refused at others: {refused[:1]}")
        if not isinstance(free, Refusal):
            answers.append((None, free))  # type: ignore[arg-type]
        return [Rung(size, answer) for size, answer in answers if isinstance(answer, Result)]

    def middle(self, document: Document, given: Mapping[str, Any]) -> Budgets:
        """Return the budget in the middle between the memory bound and the algorithm's unlimited peak."""
        free = self.solve(document, given, budgets=self.budgets_of(document, None))
        low, high = self._extremes(document, free)
        return self.budgets_of(document, (low + high) // 2)

    def _extremes(self, document: Document, free: Result | Refusal) -> tuple[int, int]:
        problem, index = self.problem(document), self.memory_index(document)
        bound = problem.memory_bounds[index]
        low = 0 if bound is None else bound.size
        if isinstance(free, Result) and free.columns is not None:
            return low, max(low, free.peak_memory[self.memory_name(document)])
        graph = problem.graph
        everything = graph.static_memory + int(graph.size.sum()) + int(graph.workspace.max(initial=0))
        return low, max(low, min(everything, 2**62))


@dataclass
class RecordingContext(Context):
    """A context that records reports, and interrupts after a given number of incumbents."""

    stop_after: int | None = None
    incumbents: list[Incumbent] = field(default_factory=list)
    bounds: list[Number] = field(default_factory=list)

    def allow(self, seconds: float) -> None:
        """Set the deadline."""
        self.deadline = time.monotonic() + seconds

    def report(
        self,
        steps: Steps | None = None,
        *,
        pattern: PeriodicSchedule | None = None,
        orders: Orders | None = None,
        makespan: Number | None = None,
        bound: Number | None = None,
        scope: str | None = None,
        message: str = "",
    ) -> None:
        """Record the steps or the pattern, and the bound."""
        super().report(
            steps, pattern=pattern, orders=orders, makespan=makespan, bound=bound, scope=scope, message=message
        )
        self.incumbents += [told for told in (steps, pattern) if told is not None]
        if bound is not None and scope == ALL_SCHEDULES:
            self.bounds.append(bound)
        if self.stop_after is not None and len(self.incumbents) >= self.stop_after:
            self.interrupted = True


@dataclass(frozen=True)
class Trial:
    """One solve without registry and command line: the solver itself, then the usual conclusion."""

    algorithm: Algorithm
    problem: Problem
    proposal: Proposal
    seen: tuple[Any, Any]

    @property
    def result(self) -> Result:
        """The verified result."""
        return conclude(self.problem, self.algorithm, self.proposal, {})

    def judge(self, incumbent: Incumbent) -> Result:
        """Place and verify a reported list of steps or pattern, as if the algorithm had returned it."""
        if isinstance(incumbent, Steps):
            result = conclude(self.problem, self.algorithm, Proposal(steps=incumbent), {})
            require(result.columns is not None, "a reported list of steps does not fit the budget")
            return result
        result = conclude(self.problem, self.algorithm, Proposal(pattern=incumbent), {})
        require(result.pattern is not None, "a reported pattern does not fit the budget")
        return result


def run_directly(
    algorithm: Algorithm,
    document: Document,
    given: Mapping[str, Any],
    budgets: Budgets,
    context: Context,
    *,
    watch: Callable[[Any], Any] = lambda thing: None,
    patience: float = 3600.0,
) -> Trial:
    """Call the solver with the caller's context, in a thread that is abandoned after a timeout."""
    problem = make_problem(load(document), budget=budgets)
    options = make_options(algorithm, given)
    # Compute what is shared before looking, so that it is looked at.
    shared: list[object] = [problem.graph.producers, problem.graph.readers, problem.needed, problem.memory_bounds]
    if problem.instance.is_chain and not problem.instance.has_parameters:
        shared.append(problem.chain)
    before = watch((problem, options))
    proposals: list[Proposal] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            proposals.append(algorithm.load()(problem, options, context))
        except BaseException as error:  # handed to the caller's thread
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(patience)
    require(not thread.is_alive(), f"{algorithm.name} still runs {patience:g} s after it should have stopped")
    if errors:
        raise errors[0]
    require(isinstance(proposals[0], Proposal), f"{algorithm.name} returned {type(proposals[0])}, not a Proposal")
    return Trial(algorithm, problem, proposals[0], (before, watch((problem, options))))


def answer_elsewhere(trials: Trials, cases: Sequence[tuple[Document, Budgets]], given: Mapping[str, Any]) -> list[str]:
    """Answer cases in another process, with another hash seed (see `remat.testing.reproducibility_worker`)."""
    asked = [
        {
            "document": document,
            "algorithm": trials.algorithm,
            "budget": dict(budgets),
            "options": dict(given),
            "seed": 0,
            "time_limit": trials.time_limit(),
        }
        for document, budgets in cases
    ]
    return _elsewhere(tuple(path for path in sys.path if path)).ask(asked)


class _Elsewhere:
    """A worker process with another hash seed; it is kept until this process ends, since starting one is slow."""

    def __init__(self, path: Sequence[str]) -> None:
        here = os.environ.get("PYTHONHASHSEED")
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "2" if here == "1" else "1",
            "PYTHONPATH": os.pathsep.join(path),
        }
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "remat.testing.reproducibility_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            env=environment,
        )
        atexit.register(self.end)

    def ask(self, cases: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(cases) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            _elsewhere.cache_clear()
            raise AssertionError(f"another process fails: {self.end()[-2000:]}")
        answers: list[str] = json.loads(line)
        return answers

    def end(self) -> str:
        """End the process; return its error output."""
        atexit.unregister(self.end)
        with self._complaints as complaints:
            try:
                self._process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()
            complaints.seek(0)
            return complaints.read().strip()


@cache
def _elsewhere(path: tuple[str, ...]) -> _Elsewhere:
    return _Elsewhere(path)


__all__ = [
    "Budgets",
    "RecordingContext",
    "Refusal",
    "Termination",
    "Trial",
    "Trials",
    "answer_elsewhere",
    "run_directly",
]
