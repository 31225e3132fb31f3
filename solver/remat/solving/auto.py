"""`auto` as an entry of the registry, and its options: its own, and those of the algorithms that it may ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from remat.errors import OptionError
from remat.messages import nearest
from remat.plugin import registry, selection
from remat.plugin.options import Options, make_options
from remat.plugin.problem import Problem

NAME = "auto"

AUTO = registry.Algorithm(
    name=NAME,
    solver="remat.solving.portfolio:solve",
    options="remat.solving.auto:AutoOptions",
    kinds=(registry.ANY_KIND, "pipeline"),
    summary="the best of all algorithms that are worth a try, by kind, machine and size",
    guarantee="heuristic",
    complexity="that of the algorithms that it runs",
    reference="docs/explanation/auto.md",
    ranks=True,
    streams=True,
    several_memories=True,
    several_processors=True,
    any_links=True,
    ratios=True,
    devices=True,
    slices=True,
    anytime=True,
)
"""The registry entry of `auto`: callers use it like any other algorithm, and its name is reserved."""

QUICK = replace(AUTO, solver="remat.solving.portfolio:solve_quickly")
"""`auto` with those candidates only that take little time: for questions about many budgets."""

ALONE = replace(AUTO, solver="remat.solving.portfolio:solve_alone")
"""`auto` without a search for the minimum budget: for questions, which search for it themselves."""


class AutoOptions(Options):
    """Options of `auto`."""

    order: Literal["free", "listed"] = Field(
        "free",
        description="for task graphs: `listed` keeps the tasks' first runs in the order of the instance, for "
        "frameworks that need it; notes give the gain of other orders",
    )
    others: dict[str, Any] = Field(
        default_factory=dict,
        description="options of the algorithms that it runs; each goes to the algorithms that have it",
    )


def find(given: str | registry.Algorithm, kind: str) -> registry.Algorithm:
    """Return an algorithm by name, `auto` among them, or as an object."""
    return AUTO if given is AUTO or given == NAME else registry.find(given, kind)


def read_options(problem: Problem, solver: registry.Algorithm, given: Mapping[str, Any]) -> Any:
    """Validate options; `auto` has its own, and those of the algorithms that it may ask.

    Raises
    ------
    OptionError
        For an unknown option.
    """
    if solver is not AUTO:
        return make_options(solver, given)
    own = {name: value for name, value in given.items() if name == "order"}
    others = {name: value for name, value in given.items() if name not in own}
    solvers = _with_options(problem) if others else {}
    for name, value in others.items():
        if name not in solvers:
            near = nearest(name, [*solvers, "order"])
            hint = f"did you mean {near!r}?" if near else f"here there are {', '.join(sorted({*solvers, 'order'}))}"
            raise OptionError(f"no algorithm of auto has the option {name!r}; {hint}", argument="options")
        _check_option(solvers[name], name, value)
    read: AutoOptions = make_options(AUTO, own)
    return read.model_copy(update={"others": others}) if others else read


def option_names(problem: Problem) -> set[str]:
    """Return the options that `auto` accepts: its own, and those of the algorithms that it may ask."""
    return {"order", *_with_options(problem)}


def _with_options(problem: Problem) -> dict[str, list[registry.Algorithm]]:
    """Return the algorithms that `auto` may ask, by the options that they have."""
    found: dict[str, list[registry.Algorithm]] = {}
    for candidate in selection.candidates(problem.used).asked:
        model = candidate.algorithm.load_options()
        for name in () if model is None else model.model_fields:
            found.setdefault(name, []).append(candidate.algorithm)
    return found


def _check_option(solvers: Sequence[registry.Algorithm], name: str, value: Any) -> None:
    """Reject a value that no algorithm accepts."""
    wrong = None
    for solver in solvers:
        try:
            make_options(solver, {name: value})
        except OptionError as error:
            wrong = wrong or error
        else:
            return
    if wrong is not None:
        raise wrong
