"""Prepared forms of algorithms: what they compute once for an instance, whatever its budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remat.plugin.context import Context
from remat.plugin.proposal import Proposal
from remat.plugin.registry import Algorithm

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.plugin.problem import Problem


@dataclass
class Forms:
    """The prepared forms of the algorithms that are asked about one instance (`Algorithm.prepare`).

    Attributes
    ----------
    instance : Instance
        Problems of any other instance are solved without a form.

    Notes
    -----
    A form is taken out of the list of idle ones while it runs. So no two threads share one, an interrupted call leaves
    no form behind that is half done, and a forked process waits for nobody.
    """

    instance: Instance
    _idle: dict[object, list[Callable[[Problem, Context], Proposal]]] = field(default_factory=dict, repr=False)

    def solve(self, solver: Algorithm, problem: Problem, chosen: Any, context: Context) -> Proposal:
        """Solve with the prepared form of an algorithm, or plainly if it has none."""
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
