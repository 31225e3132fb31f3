"""Jaxprs are run equation by equation, so that their results can be named and their parts checkpointed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from remat.bridges.jax.primitives import CALLS, REMAT
from remat.bridges.jax.shim import checkpoint_name, core, jax

INLINED = REMAT | {"jit", "pjit", "closed_call", "core_call"}
"""Calls whose equations join those of the caller; derivatives of others are not those of their equations."""


def inline(closed: Any) -> Any:
    """Return a closed jaxpr without nested calls and checkpoints."""

    def run(*arguments: Any) -> Any:
        return evaluate(closed, arguments)

    return jax.make_jaxpr(run)(*(shape_of(each) for each in closed.in_avals))


def shape_of(aval: Any) -> Any:
    """Return shape and type of an array."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def evaluate(closed: Any, arguments: Sequence[Any]) -> list[Any]:
    """Run a closed jaxpr; nested calls and checkpoints leave no trace."""
    jaxpr = closed.jaxpr
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *arguments], strict=True))
    for eqn in jaxpr.eqns:
        run_equation(eqn, known)
    return [value_of(each, known) for each in jaxpr.outvars]


def value_of(atom: Any, known: Mapping[Any, Any]) -> Any:
    """Return the value of a variable or literal."""
    return atom.val if isinstance(atom, core.Literal) else known[atom]


def variables(atoms: Iterable[Any]) -> Iterator[Any]:
    """Yield the variables among variables and literals."""
    return (each for each in atoms if not isinstance(each, core.Literal))


def run_equation(eqn: Any, known: dict[Any, Any], names: Mapping[Any, str] | None = None) -> None:
    """Run an equation on known variables, and add its results; those with a name get it."""
    arguments = [value_of(each, known) for each in eqn.invars]
    name = eqn.primitive.name
    if name in INLINED:
        inner = eqn.params[CALLS[name]]
        found = evaluate(inner if isinstance(inner, core.ClosedJaxpr) else core.ClosedJaxpr(inner, []), arguments)
    else:
        with eqn.ctx.manager:
            found = eqn.primitive.bind(*arguments, **eqn.primitive.get_bind_params(eqn.params))
        found = found if eqn.primitive.multiple_results else [found]
    for variable, value in zip(eqn.outvars, found, strict=True):
        label = (names or {}).get(variable)
        known[variable] = value if label is None else checkpoint_name(value, label)
