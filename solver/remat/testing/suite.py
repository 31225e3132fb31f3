"""`AlgorithmSuite`: conformance tests of every algorithm; subclass it and name the algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, ClassVar
from zlib import crc32

from remat.instance import load
from remat.plugin.problem import budgeted_memories
from remat.plugin.proposal import Termination
from remat.plugin.registry import KINDS, Algorithm, algorithms, find
from remat.solving.result import Result
from remat.testing import cases, metadata
from remat.testing.cases import Document, degenerate
from remat.testing.checks import (
    Rung,
    at_most,
    changed,
    check_answer,
    check_budgets,
    check_least,
    document_of,
    fingerprint,
    first_difference,
    own_peak,
    require,
    stopped_by_a_limit,
)
from remat.testing.ladder import RecordingContext, Refusal, Trials, answer_elsewhere, run_directly

if TYPE_CHECKING:
    import pytest
    from hypothesis.strategies import SearchStrategy

    from remat.graph.machine import Machine

LIMITS = (Termination.TIME_LIMIT, Termination.INTERRUPTED)

Draw = tuple[Document, tuple[int, ...]]
"""An instance, and how far between the least and the largest budget it is solved, in per cent."""


class AlgorithmSuite:
    """Conformance tests of one algorithm, collected by pytest.

    Attributes
    ----------
    algorithm : str
        Registry name of the algorithm under test.
    examples : int
        Instances drawn per kind and test. Draws are derandomised: every run sees the same ones.
    options : tuple of mapping
        Sets of options for all tests; default: none.
    time_limit : float
        Seconds for one solve, if the algorithm is anytime.
    sparing : bool
        Whether to run fewer solves. Degenerate instances are then solved at three budgets only: the middle one, none,
        and an infeasible one. Each algorithm solves a different fifth of them (a ninth for kinds that are lowered to
        task graphs, by an algorithm for task graphs). Another process solves every fourth of these. The first set of
        options runs on all kinds, each further set on one kind.
    patience : float
        Seconds after which an interrupted solver counts as stuck.
    """

    algorithm: ClassVar[str]
    examples: ClassVar[int] = 40
    options: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    time_limit: ClassVar[float] = 5.0
    sparing: ClassVar[bool] = False
    patience: ClassVar[float] = 60.0
    _trials: ClassVar[Trials]
    _drawn: ClassVar[dict[tuple[type[AlgorithmSuite], str, int], list[Draw]]] = {}

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if hasattr(cls, "algorithm"):
            cls._trials = Trials(cls.algorithm, cls.time_limit)

    def instances(self, kind: str) -> SearchStrategy[Document]:
        """Return the strategy that draws instance documents; override it to draw others."""
        from remat.testing.strategies import documents

        return documents(kind)

    def examples_of(self, kind: str) -> int:
        """Return the number of drawn instances of a kind; override it if kinds differ."""
        return self.examples

    def moderate(self, kind: str) -> Document:
        """Return an instance large enough to interrupt a search; override it if a smaller one suffices."""
        return cases.moderate(kind)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test for every kind that the algorithm accepts, and every set of options (see `sparing`).

        The tests of a class share their answers: with pytest-xdist, ``--dist loadscope`` keeps them on one worker, and
        ``--dist worksteal`` most of them.
        """
        import pytest

        # An unknown name must fail in the tests, with the registry's message, and not here.
        known = {algorithm.name: algorithm for algorithm in algorithms()}.get(self.algorithm)
        kinds = [kind for kind in KINDS if known is None or known.accepts(kind)]
        shown = [",".join(f"{key}={value}" for key, value in given.items()) or "default" for given in self.options]
        if {"kind", "given"} <= set(metafunc.fixturenames):
            asked = [
                pytest.param(kind, given, id=f"{kind}-{name}")
                for k, (given, name) in enumerate(zip(self.options, shown, strict=True))
                for kind in (kinds if k == 0 or not self.sparing else [kinds[k % len(kinds)]])
            ]
            metafunc.parametrize(("kind", "given"), asked)
        elif "kind" in metafunc.fixturenames:
            metafunc.parametrize("kind", kinds)
        elif "given" in metafunc.fixturenames:
            metafunc.parametrize("given", self.options, ids=shown)

    # --- what is known without solving --------------------------------------------------------------------------------

    def test_metadata_is_complete(self) -> None:
        """Name, kinds, summary, guarantee, class, complexity and reference are there, and the solver can be loaded."""
        metadata.check_entry(self._subject())

    def test_options_are_documented(self) -> None:
        """The options are a frozen model with a description of each field; unknown options are refused."""
        metadata.check_options(self._subject(), self.options)

    def test_other_kinds_are_refused(self) -> None:
        """An instance of another kind is an `OptionError`."""
        algorithm = self._subject()
        for kind in KINDS:
            if not algorithm.accepts(kind):
                answer = self._trials.solve(cases.moderate(kind), {}, budgets={})
                require(
                    isinstance(answer, Refusal), f"{algorithm.name} does not list {kind}, and takes it all the same"
                )

    # --- schedules ----------------------------------------------------------------------------------------------------

    def test_instances_are_accepted(self, kind: str, given: Mapping[str, Any]) -> None:
        """Some instances are solved: an algorithm may refuse what it cannot do, but not everything."""
        refusals: list[Refusal] = []
        solved: list[Document] = []

        def check(document: Document, rungs: Sequence[Rung]) -> None:
            solved.extend([document] if any(rung.result.columns is not None for rung in rungs) else [])

        self._each(kind, given, check, refusals)
        for document in degenerate(kind).values():
            if self.sparing and solved:
                break
            answer = self._trials.solve(document, given, budgets=self._trials.budgets_of(document, None))
            solved.extend([document] if isinstance(answer, Result) and answer.columns is not None else [])
        require(bool(solved), f"no {kind} instance was solved; refused, for example: {refusals[:1]}")

    def test_schedules_are_valid(self, kind: str, given: Mapping[str, Any]) -> None:
        """Verified afresh, within every budget, as claimed, and not below any bound."""
        algorithm = self._subject()

        def check(document: Document, rungs: Sequence[Rung]) -> None:
            for rung in rungs:
                check_answer(algorithm, document, rung.result)

        self._each(kind, given, check)

    def test_more_memory_never_hurts(self, kind: str, given: Mapping[str, Any]) -> None:
        """Answers at different budgets agree: exact ones are monotone, proofs hold, a strategy stays itself."""
        self._each(kind, given, self._compare)

    def test_least_budgets_are_least(self, kind: str, given: Mapping[str, Any]) -> None:
        """Solving at a reported minimum budget succeeds; with a byte less it fails."""
        self._each(kind, given, lambda document, rungs: self._check_least(document, given, rungs))

    def test_own_peak_is_enough(self, kind: str, given: Mapping[str, Any]) -> None:
        """Solving at the peak of a schedule finds one that is no slower, unless the metadata says why not."""
        if self._subject().needs_slack:
            return

        def check(document: Document, rungs: Sequence[Rung]) -> None:
            # A few of the fast tests' answers are those of the ladder.
            for rung in rungs[-1:] if self.sparing else rungs:
                self._check_at_peak(document, given, rung)

        self._each(kind, given, check)

    def test_prepared_answers_are_as_good(self, kind: str, given: Mapping[str, Any]) -> None:
        """`remat.prepare` answers each budget like a solve, or better; checked for algorithms with a prepared form."""
        if not self._subject().prepare:
            return

        def check(document: Document, rungs: Sequence[Rung]) -> None:
            from remat.solving.questions.prepared import prepare

            prepared = prepare(document, algorithm=self.algorithm, options=given)
            for rung in [*rungs[1::2], *rungs[::2]]:
                mine = prepared.solve(
                    self._trials.budgets_of(document, rung.budget), time_limit=self._trials.time_limit()
                )
                check_answer(self._subject(), document, mine)
                if mine.termination not in LIMITS and rung.result.termination not in LIMITS:
                    one, other = (answer.makespan for answer in (mine, rung.result))
                    good = other is None or (one is not None and one <= other)
                    require(good, f"prepared, budget {rung.budget} takes {one}, and alone {other}")

        self._each(kind, given, check)

    def test_degenerate_instances(self, kind: str, given: Mapping[str, Any]) -> None:
        """All of the above on empty, single, zero-sized, zero-time, equal, huge and disconnected instances."""
        algorithm = self._subject()
        for case, document in self._degenerate(kind).items():
            try:
                rungs = self._trials.rungs(document, given, shares=(50,), edges=not self.sparing, nothing=False)
                if isinstance(rungs, Refusal):
                    continue
                for rung in rungs:
                    check_answer(algorithm, document, rung.result)
                self._compare(document, rungs)
                self._check_least(document, given, rungs)
            except Exception as error:
                error.add_note(f"Degenerate instance: {case!r} ({kind})")
                raise

    # --- reproducibility ----------------------------------------------------------------------------------------------

    def test_same_seed_same_schedule(self, kind: str, given: Mapping[str, Any]) -> None:
        """Solving again gives the same steps and the same figures."""

        def check(document: Document, rungs: Sequence[Rung]) -> None:
            for rung in rungs[:: max(1, len(rungs) - 1)]:
                budgets = self._trials.budgets_of(document, rung.budget)
                again = self._trials.solve_afresh(document, given, budgets=budgets)
                if isinstance(again, Refusal):
                    raise AssertionError(f"refused when solved again: {again}")
                if rung.result.termination not in LIMITS and again.termination not in LIMITS:
                    same = document_of(again) == document_of(rung.result)
                    require(same, f"solving again with the same seed differs (budget {rung.budget})")

        self._each(kind, given, check)

    def test_same_schedule_in_another_process(self, given: Mapping[str, Any]) -> None:
        """Another process with another hash seed gives the same schedules, byte for byte."""
        algorithm = self._subject()
        kinds = [kind for kind in KINDS if algorithm.accepts(kind)]
        asked, own = [], []
        step = 4 if self.sparing else 1
        documents = [[*list(self._degenerate(kind).values())[::step], self.moderate(kind)] for kind in kinds]
        for document in chain.from_iterable(documents):
            # Scarce memory leaves most to decide; use all of it if less is infeasible.
            for budgets in (self._trials.middle(document, given), self._trials.budgets_of(document, None)):
                answer = self._trials.solve(document, given, budgets=budgets)
                if not isinstance(answer, Refusal) and answer.termination not in LIMITS:
                    asked.append((document, budgets))
                    own.append(document_of(answer))
                    if answer.columns is not None:
                        break
        others = answer_elsewhere(self._trials, asked, given)
        for (document, budgets), mine, other in zip(asked, own, others, strict=True):
            where = f"budget {dict(budgets)}, instance {document}"
            if stopped_by_a_limit(other):
                continue  # the clock decided there, and not here
            require(mine == other, f"another process answers differently ({first_difference(mine, other)}): {where}")

    def test_problem_is_left_alone(self, kind: str, given: Mapping[str, Any]) -> None:
        """The solver does not change the problem or its options."""
        algorithm = self._subject()

        def check(document: Document, rungs: Sequence[Rung]) -> None:
            budgets = self._trials.budgets_of(document, rungs[0].budget)
            before, after = run_directly(
                algorithm, document, given, budgets, RecordingContext(), watch=fingerprint
            ).seen
            where = changed(before, after)
            require(where is None, f"the solver changed {where}")

        self._each(kind, given, check)

    # --- interruption -------------------------------------------------------------------------------------------------

    def test_stops_when_asked(self, kind: str, given: Mapping[str, Any]) -> None:
        """An algorithm that is interrupted or late before it starts still answers, and its answer is valid."""
        algorithm = self._subject()
        for document in (self.moderate(kind), *list(degenerate(kind).values())[:2]):
            budgets = self._trials.middle(document, given)
            if isinstance(self._trials.solve(document, given, budgets=budgets), Refusal):
                continue
            for context in (RecordingContext(interrupted=True), RecordingContext(deadline=0.0)):
                answer = run_directly(algorithm, document, given, budgets, context, patience=self.patience).result
                check_answer(algorithm, document, answer)
                limits = (Termination.ITERATION_LIMIT, Termination.SIZE_LIMIT)
                stopped = (context.termination, Termination.COMPLETED, *limits)
                require(answer.termination in stopped, f"{context.termination} is reported as {answer.termination}")

    def test_incumbents_are_schedules(self, kind: str, given: Mapping[str, Any]) -> None:
        """Each reported schedule is better than the last; if stopped after a report, the algorithm returns one."""
        algorithm = self._subject()
        document = self.moderate(kind)
        budgets = self._trials.middle(document, given)
        if isinstance(self._trials.solve(document, given, budgets=budgets), Refusal):
            return
        for stop_after in (1, None):
            context = RecordingContext(stop_after=stop_after)
            context.allow(self.time_limit)
            trial = run_directly(algorithm, document, given, budgets, context, patience=self.time_limit + self.patience)
            makespans = [trial.judge(steps).makespan for steps in context.incumbents]
            for before, later in pairwise(makespans):
                require(
                    before is not None and later is not None and later <= before, f"incumbents get worse: {makespans}"
                )
            answer = trial.result
            check_answer(algorithm, document, answer)
            if makespans:
                best = makespans[-1]
                kept = best is not None and answer.makespan is not None and at_most(answer.makespan, best)
                require(kept, f"reported a makespan of {best}, and then returned {answer.makespan}")
            for bound in context.bounds:
                below = answer.makespan is None or at_most(bound, answer.makespan)
                require(below, f"reported bound {bound} is above the makespan {answer.makespan}")

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _subject(self) -> Algorithm:
        """Return the algorithm under test; skip if its dependencies are not installed."""
        import pytest

        known = {algorithm.name: algorithm for algorithm in algorithms()}.get(self.algorithm)
        if known is not None and known.missing():
            pytest.skip(f"{known.name} needs {', '.join(known.missing())}")
        if known is None:
            known = find(self.algorithm, KINDS[0])
        return known

    def _degenerate(self, kind: str) -> Mapping[str, Document]:
        """Return the degenerate instances of a kind to solve, which differ between algorithms."""
        every = degenerate(kind)
        if not self.sparing:
            return every
        step = 9 if kind != "dag" and self._subject().accepts("dag") else 5
        return dict(list(every.items())[crc32(f"{self.algorithm} {kind}".encode()) % step :: step])

    def _each(
        self,
        kind: str,
        given: Mapping[str, Any],
        check: Callable[[Document, Sequence[Rung]], None],
        refusals: list[Refusal] | None = None,
    ) -> None:
        """Solve drawn instances at a ladder of budgets, check the answers, and shrink failures.

        All tests see the same draws, and share the answers.
        """
        self._subject()

        def examine(document: Document, shares: tuple[int, ...]) -> None:
            rungs = self._trials.rungs(document, given, shares=shares)
            if not isinstance(rungs, Refusal):
                check(document, rungs)
            elif refusals is not None:
                refusals.append(rungs)

        for document, shares in self._draws(kind):
            try:
                examine(document, shares)
            except Exception:
                # The same draws again, so that hypothesis finds it, too, and the least of its kind.
                self._draw(kind, examine)
                raise

    def _draws(self, kind: str) -> list[Draw]:
        """Return the drawn instances; suites with equal draws share them."""
        owner = AlgorithmSuite if type(self).instances is AlgorithmSuite.instances else type(self)
        key = (owner, kind, self.examples_of(kind))
        if key not in self._drawn:
            drawn: list[Draw] = []
            self._draw(kind, lambda document, shares: drawn.append((document, shares)))
            self._drawn[key] = drawn
        return self._drawn[key]

    def _draw(self, kind: str, act: Callable[[Document, tuple[int, ...]], None]) -> None:
        """Draw instances and shares for their budgets; the draws do not depend on their use."""
        from hypothesis import HealthCheck, Phase, given, settings
        from hypothesis import strategies as st

        shares = st.lists(st.integers(0, 99), min_size=1, max_size=2)

        @settings(
            max_examples=self.examples_of(kind),
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        )
        @given(document=self.instances(kind), shares=shares)
        def run(document: Document, shares: list[int]) -> None:
            act(document, tuple(shares))

        run()

    def _compare(self, document: Document, rungs: Sequence[Rung]) -> None:
        check_budgets(self._subject(), self._trials.memory_name(document), rungs)

    def _check_at_peak(self, document: Document, given: Mapping[str, Any], rung: Rung) -> None:
        found = rung.result
        if found.columns is None or found.termination in LIMITS:
            return
        peak = own_peak(found, self._trials.memory_index(document))
        if peak > 2**62:
            return
        again = self._trials.solve(document, given, budgets=self._trials.budgets_of(document, peak))
        require(isinstance(again, Result), f"accepted at budget {rung.budget}, refused at {peak}")
        if not isinstance(again, Result) or again.termination in LIMITS:
            return
        assert found.makespan is not None
        slower = again.makespan is None or not at_most(again.makespan, found.makespan)
        figures = f"makespan {found.makespan}, peak {peak}; budget {peak}: {again.status} {again.makespan}"
        require(not slower, f"the peak of its own schedule is not enough (budget {rung.budget}: {figures})")

    def _check_least(self, document: Document, given: Mapping[str, Any], rungs: Sequence[Rung]) -> None:
        memory = self._trials.memory_index(document)
        for rung in rungs:
            if rung.result.columns is not None or rung.budget is None:
                continue
            check_least(rung.result, memory, rung.budget)
            least = rung.result.least_budget
            if least is None:
                continue
            machine = rung.result.machine
            named = budgeted_memories(load(document), machine, least.memory)
            name = machine.memories[least.memory].name
            budgets = dict(self._trials.budgets_of(document, rung.budget))
            if least.sufficient:
                again = self._trials.solve(document, given, budgets=budgets | _all_at(machine, named, least.size))
                if isinstance(again, Refusal) or again.columns is None:  # a result takes long to show
                    where = f"(at budget {rung.budget})"
                    raise AssertionError(f"{least.size} in {name} is reported to be enough but is not {where}: {again}")
            if least.size > 0 and rung.result.scope is not None:
                less = self._trials.solve(document, given, budgets=budgets | _all_at(machine, named, least.size - 1))
                solved = not isinstance(less, Refusal) and less.columns is not None
                require(
                    not solved, f"{least.size} in {name} is reported to be the minimum, but one byte less is enough"
                )


def _all_at(machine: Machine, memories: Sequence[int], size: int) -> dict[str, int]:
    """Return one budget for each of these memories."""
    return {machine.memories[memory].name: size for memory in memories}
