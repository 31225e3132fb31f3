"""Checks of an algorithm's registry entry and options model."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from remat.errors import OptionError
from remat.plugin.options import Options, make_options
from remat.plugin.registry import ANY_KIND, KINDS, Algorithm, Guarantee
from remat.testing.checks import require


def check_entry(algorithm: Algorithm) -> None:
    """Check one entry of a catalogue, and that its solver and options can be imported."""
    name = algorithm.name
    require(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) is not None, f"{name!r}: a name is small-letters-and-dashes")
    require(bool(algorithm.kinds), f"{name}: no kinds")
    unknown = set(algorithm.kinds) - {*KINDS, ANY_KIND}
    require(not unknown, f"{name}: unknown kinds {sorted(unknown)}")
    one_line = bool(algorithm.summary.strip()) and "\n" not in algorithm.summary
    require(one_line, f"{name}: the summary is one line of text")
    require(algorithm.guarantee in get_args(Guarantee), f"{name}: unknown guarantee {algorithm.guarantee!r}")
    if algorithm.guarantee in ("exact", "strategy"):
        require(bool(algorithm.within), f"{name}: {algorithm.guarantee} within what? `within` is empty")
    require(bool(algorithm.complexity), f"{name}: the complexity is missing")
    require(bool(algorithm.reference), f"{name}: the reference is missing ('-' if there is none)")
    require("\n" not in algorithm.deviates, f"{name}: `deviates` is one line of text")
    require("\n" not in algorithm.needs_slack, f"{name}: `needs_slack` is one line of text")
    only_idea = algorithm.reference.startswith("after ")
    require(bool(algorithm.deviates) or not only_idea, f"{name}: `deviates` is empty, and the reference says 'after'")
    solver = algorithm.load()
    require(callable(solver), f"{name}: {algorithm.solver} is not callable")
    require(bool(inspect.getdoc(solver)), f"{name}: {algorithm.solver} has no docstring")
    parameters = list(inspect.signature(solver).parameters)
    require(len(parameters) == 3, f"{name}: a solver takes (problem, options, context), not {parameters}")


def check_options(algorithm: Algorithm, tried: Sequence[Mapping[str, Any]]) -> None:
    """Check that the options model is frozen, closed and documented, and accepts the tested options."""
    name = algorithm.name
    model = algorithm.load_options()
    for given in tried:
        first, second = make_options(algorithm, given), make_options(algorithm, given)
        require(first == second, f"{name}: equal options {dict(given)} make unequal models")
    _refuses_unknown(algorithm)
    if model is None:
        return
    require(issubclass(model, Options), f"{name}: options derive from remat.plugin.Options")
    require(bool(model.model_config.get("frozen")), f"{name}: the options model is not frozen")
    require(model.model_config.get("extra") == "forbid", f"{name}: the options model takes unknown names")
    for option, field in model.model_fields.items():
        require(bool(field.description), f"{name}: option {option!r} has no description")
        require(re.fullmatch(r"[a-z][a-z0-9_]*", option) is not None, f"{name}: {option!r} is not a name for an option")
    for given in tried:
        made = make_options(algorithm, given)
        again = make_options(algorithm, made.model_dump(mode="json"))
        require(made == again, f"{name}: options do not survive JSON: {made} and {again}")


def _refuses_unknown(algorithm: Algorithm) -> None:
    try:
        make_options(algorithm, {"no_such_option": 1})
    except OptionError:
        return
    raise AssertionError(f"{algorithm.name}: an unknown option is taken")
