"""The gradient step of a JAX function becomes a task graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remat.bridges.factories import make
from remat.bridges.jax.fusion import Task, fuse
from remat.bridges.jax.options import is_float
from remat.bridges.jax.planning import rates_of
from remat.bridges.jax.program import Program, flatten
from remat.bridges.jax.shim import JaxError, jax
from remat.generate.devices import DEFAULT
from remat.messages import reason


@dataclass(frozen=True, slots=True)
class Imported:
    """A task graph imported from a function.

    Attributes
    ----------
    document : dict
        An instance of kind ``dag``, in nanoseconds and bytes.
    flops : int
        Operations of forward and backward.
    opaque : tuple of str
        Loops and conditions that are one task each.
    """

    document: dict[str, Any]
    flops: int
    opaque: tuple[str, ...]


def import_factory(named: str, *, device: str = DEFAULT, name: str | None = None) -> Imported:
    """Call a factory that returns ``(function, args)`` or ``(function, args, kwargs)``, and import the gradient step.

    Parameters
    ----------
    named : str
        ``module:function`` or ``path/to/file.py:function``.
    device : str
        A device of the shipped table.
    name : str, optional
        Name of the instance; default: that of the function.
    """
    made = make(named, JaxError)
    match made:
        case (function, tuple() | list() as args) if callable(function):
            return import_step(function, args, {}, device=device, name=name, source=named)
        case (function, tuple() | list() as args, Mapping() as kwargs) if callable(function):
            return import_step(function, args, kwargs, device=device, name=name, source=named)
    raise JaxError(f"{named} returns a {type(made).__name__}, not (function, args) or (function, args, kwargs)")


def import_step(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    device: str = DEFAULT,
    name: str | None = None,
    source: str = "",
) -> Imported:
    """Trace ``jax.value_and_grad`` of a function, and make its task graph; nothing is executed.

    Parameters
    ----------
    function : callable
        Returns a scalar loss, alone or as the first of a tuple. The gradient is that of its first argument.
    args, kwargs
        Arrays, or `jax.ShapeDtypeStruct`.
    device, name, source : str
        Device of the shipped table; name of the instance; text for its ``source``.
    """
    called = getattr(function, "__name__", type(function).__name__)
    given = dict(kwargs or {})
    try:
        found, structure = jax.tree.flatten(jax.eval_shape(function, *args, **given))
    except Exception as error:
        raise JaxError(f"{called} cannot be traced: {reason(error)}") from error
    if not found or found[0].shape or not is_float(found[0]):
        shown = f"{found[0].dtype} {list(found[0].shape)}" if found else "nothing"
        raise JaxError(f"the loss is not a scalar: {called} returns {shown}, not one floating-point number")
    auxiliary = structure != jax.tree.structure(0.0)
    try:
        closed = jax.make_jaxpr(jax.value_and_grad(function, has_aux=auxiliary))(*args, **given)
    except Exception as error:
        raise JaxError(f"{called} has no gradient: {reason(error)}") from error
    program = flatten(closed, unroll=True)
    tasks = fuse(program, rates_of(program, device))
    if not tasks:
        raise JaxError(f"{called} computes nothing")
    work = sum(task.operation.flops for task in tasks)
    opaque = tuple(f"{count} x {key}" for key, count in sorted(program.opaque.items()))
    described = f"gradient step of {called} in JAX: {len(tasks):,} tasks, {work / 1e9:.2f} GFLOP, roofline of {device}"
    document = _document(program, tasks) | {"name": name or called, "description": described}
    if source:
        document["source"] = f"imported by: remat import jax {source}"
    return Imported(document, work, opaque)


def _document(program: Program, tasks: Sequence[Task]) -> dict[str, Any]:
    made = {value for task in tasks for value in task.writes}
    static = set(program.inputs) - made  # arguments and constants
    last = next((index for index, task in enumerate(tasks) if program.outputs[0] in task.writes), len(tasks) - 1)
    rows = []
    for index, task in enumerate(tasks):
        operation = task.operation
        origin = {"op": operation.primitive} | ({"module": operation.scope} if operation.scope else {})
        rows.append(
            {
                "id": f"{operation.primitive}.{index}",
                "time": task.time,
                "reads": [f"v{value}" for value in task.reads if value not in static],
                "writes": [f"v{value}" for value in task.writes],
                "phase": "forward" if index < last else "loss" if index == last else "backward",
                "origin": origin,
            }
        )
    return {
        "schema": "remat.instance/3",
        "kind": "dag",
        "units": {"time": "ns", "memory": "B"},
        "static_memory": sum(program.sizes[value] for value in static),
        "values": [{"id": f"v{value}", "size": program.sizes[value]} for value in sorted(made)],
        "tasks": rows,
        "inputs": [],
        "outputs": [f"v{value}" for value in dict.fromkeys(program.outputs) if value in made],
    }
