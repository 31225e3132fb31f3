"""`remat.prepare`: one instance and one algorithm, ready for many budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from remat.errors import OptionError, checked_call
from remat.instance import load
from remat.plugin.context import Progress
from remat.solving.budget import Budget, apply_budget
from remat.solving.entry import Setup
from remat.solving.problem_setup import AnyInstance, AnyMachine, Control
from remat.solving.result import Result

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.plugin.cancel import Cancel
    from remat.plugin.registry import Algorithm
    from remat.solving.questions.curves import Curve
    from remat.solving.warm_start import WarmStart


@checked_call(OptionError)
def prepare(
    instance: AnyInstance,
    *,
    algorithm: str | Algorithm = "auto",
    machine: AnyMachine = None,
    options: Mapping[str, Any] | None = None,
) -> Prepared:
    """Prepare an instance for solves with many budgets.

    Parameters
    ----------
    instance : path, open file, dict or instance
    algorithm, machine, options
        As in `remat.solve`.

    Returns
    -------
    Prepared

    Raises
    ------
    remat.InstanceError, remat.OptionError
        For input that cannot be used.

    See Also
    --------
    remat.sweep : one call for all budgets.

    Examples
    --------
    >>> import remat
    >>> prepared = remat.prepare(remat.example("resnet50"), algorithm="rotor")
    >>> [str(prepared.solve(budget).status) for budget in (0.2, 0.5, 0.8)]
    ['infeasible', 'feasible', 'feasible']
    """
    setup = Setup.of(load(instance), algorithm, machine, options or {})
    setup.share()
    return Prepared(setup)


class Prepared:
    """An instance and an algorithm, prepared for many budgets; created by `remat.prepare`.

    Notes
    -----
    Data that do not depend on the budget are computed once: the task graph, its bounds, the reference peaks of relative
    budgets, and the tables of algorithms with a prepared form, for example `rotor`. A proved answer is reused for all
    other budgets at which its proof holds. Every answer is placed and verified. Its status, makespan and bounds are
    those of `remat.solve` or better. Among equally fast schedules, the choice may depend on earlier solves.

    Objects may be shared between threads.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def __repr__(self) -> str:
        return f"<Prepared {self.instance.name!r} for {self.algorithm}>"

    @property
    def instance(self) -> Instance:
        """The instance."""
        return self._setup.problem.instance

    @property
    def algorithm(self) -> str:
        """The name of the algorithm."""
        return self._setup.solver.name

    @checked_call(OptionError)
    def solve(
        self,
        budget: Budget = None,
        *,
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        patience: float | str | None = None,
        warm_start: WarmStart = None,
        seed: int = 0,
        threads: int = 1,
        progress: Callable[[Progress], object] | None = None,
        cancel: Cancel | None = None,
    ) -> Result:
        """Solve for a budget, and verify the schedule.

        Parameters and exceptions are those of `remat.solve`.

        Returns
        -------
        Result
        """
        control = Control(time_limit, gap, patience, seed, threads, progress, cancel)
        return self._setup.solve_within(control, budget, warm_start)

    @checked_call(OptionError)
    def curve(
        self,
        budgets: Iterable[float | str] | None = None,
        *,
        points: int | None = None,
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        patience: float | str | None = None,
        seed: int = 0,
        threads: int = 1,
        progress: Callable[[Progress], object] | None = None,
        cancel: Cancel | None = None,
    ) -> Curve:
        """Compute the time-memory curve.

        Parameters and exceptions are those of `remat.sweep`.

        Returns
        -------
        Curve
        """
        from remat.solving.questions.sweep import sweep_of

        control = Control(time_limit, gap, patience, seed, threads, progress, cancel)
        setup = self._setup
        found = sweep_of(setup.problem, (setup.solver,), budgets, points, setup.options, control, setup.forms)
        return found.curves[0]

    @checked_call(OptionError)
    def least_budget(
        self,
        *,
        max_overhead: float | str | None = None,
        max_makespan: float | str | None = None,
        budget: Budget = None,
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        patience: float | str | None = None,
        seed: int = 0,
        threads: int = 1,
        progress: Callable[[Progress], object] | None = None,
        cancel: Cancel | None = None,
    ) -> Result:
        """Find the smallest budget that meets a time limit, or of any schedule.

        Parameters and exceptions are those of `remat.least_budget`.

        Returns
        -------
        Result
        """
        from remat.solving.questions.least_budget import least_budget_of

        control = Control(time_limit, gap, patience, seed, threads, progress, cancel)
        setup, price = self._setup, (max_overhead, max_makespan)
        problem = apply_budget(setup.problem, budget, setup.wholes)
        return least_budget_of(problem, setup.solver, price, budget, setup.options, control, setup.forms)
