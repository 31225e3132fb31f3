"""Prepared forms of algorithms: results that depend on the instance but not on its budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remat.plugin.proposal import Proposal
from remat.plugin.registry import Algorithm

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.plugin.problem import Problem


@dataclass
class Forms:
    """The prepared forms of the algorithms that solve one instance (`Algorithm.prepare`).

    Attributes
    ----------
    instance : Instance
        Problems of any other instance are solved without a prepared form.

    Notes
    -----
    A form is removed from the idle list while it runs. Therefore no two threads share a form, an interrupted call
    leaves no incomplete form behind, and a forked process never waits for another one.
    """

    instance: Instance
    _idle: dict[object, list[Callable[[Problem, Any], Proposal]]] = field(default_factory=dict, repr=False)

    def solve(self, solver: Algorithm, problem: Problem, chosen: Any, context: Any) -> Proposal:
        """Solve with the prepared form of an algorithm, or with its solver if it has none.

        `context` is a `Context`, which holds these forms and is therefore not imported here.
        """
        make = solver.load_prepare() if problem.instance is self.instance else None
        if make is None:
            return solver.load()(problem, chosen, context)  # type: ignore[no-any-return]
        idle = self._idle.setdefault((solver.name, solver.prepare, repr(chosen)), [])
        try:
            form = idle.pop()
        except IndexError:
            form = make(problem, chosen)
        proposal = form(problem, context)
        idle.append(form)
        return proposal
