"""Conversion of an instance to another batch size."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from remat.errors import OptionError
from remat.instance import AdjointInstance, ChainInstance, DagInstance, Instance, JoinInstance, instance_from_document
from remat.instance.machine import ANY
from remat.units import Number

_STAGE_TIMES = ("forward_time", "backward_time", "saving_forward_time", "tape_time", "time", "energy")
_STAGE_SIZES = (
    "output_size",
    "saved_size",
    "gradient_size",
    "forward_workspace",
    "saving_workspace",
    "backward_workspace",
    "workspace",
    "size",
    "input_size",
    "state_size",
    "adjoint_size",
    "tape_size",
)


def scaled(instance: Instance, batch: int, of: int = 1) -> Instance:
    """Return the instance for `batch` items, if it was measured for `of` items.

    Times, energies of tasks, values (activations, saved values, gradients, states, inputs) and workspaces scale in
    proportion. An integer time stays an integer; sizes are rounded up. Static memory and pinned inputs (parameters),
    the machine, and the bytes of an adjoint's storage levels do not change. Reading and writing a checkpoint scales
    like all other times.

    Parameters
    ----------
    instance : chain, join, adjoint or dag
    batch, of : int

    Returns
    -------
    Instance
        An instance of the same kind; its name and source state the conversion.

    Raises
    ------
    remat.OptionError
        For trees, for which no such scaling is known.
    remat.InstanceError
        If the scaled sizes add up to more than 2^62.
    """
    if not isinstance(instance, (ChainInstance, AdjointInstance, DagInstance, JoinInstance)):
        raise OptionError(f"chains, joins, adjoints and dags have a batch, not a {instance.kind}")
    if batch == of:
        return instance
    factor = Fraction(batch, of)
    document = instance.model_dump(mode="python", by_alias=True, exclude_defaults=True)
    document |= {
        "schema": instance.least_schema,
        "kind": instance.kind,
        "name": f"{instance.name or instance.kind} at batch {batch}",
        "source": f"{instance.source and instance.source + '; '}scaled from batch {of} to {batch}",
    }
    match instance:
        case ChainInstance():
            _scale(document, factor)
            _scale(document.get("loss", {}), factor)
            _scale_stages(document, factor)
        case JoinInstance():
            _scale(document.get("loss", {}), factor)
            for chain in document["chains"]:
                _scale(chain, factor)
                _scale_stages(chain, factor)
        case AdjointInstance():
            _scale_adjoint(document, instance, factor)
        case DagInstance():
            # Inputs that the schedule places do not scale, like pinned inputs: usually they are parameters.
            placed = {p.value for p in instance.inputs if p.memory == ANY and instance.is_placeable}
            pinned = {*instance.pinned_inputs, *placed}
            for value in document.get("values", ()):
                value.pop("shape", None)  # the instance does not say which extent is the batch
                if value["id"] not in pinned:
                    _scale(value, factor)
            for task in document["tasks"]:
                _scale(task, factor)
    return instance_from_document(document)


def _scale_stages(document: dict[str, Any], factor: Fraction) -> None:
    for stage in document["stages"]:
        _scale(stage, factor)
        for variant in stage.get("variants", ()):
            _scale(variant, factor)


def _scale_adjoint(document: dict[str, Any], instance: AdjointInstance, factor: Fraction) -> None:
    # Omitted times have defaults, which scale, too.
    document |= {"forward_time": instance.forward_time, "backward_time": instance.backward_time}
    document["state_size"] = instance.state_size
    _scale(document, factor)
    steps = () if isinstance(instance.steps, int) else instance.steps
    if steps:
        document["steps"] = [step.model_dump(mode="python", exclude_defaults=True) for step in steps]
        for step in document["steps"]:
            _scale(step, factor)
    states = [instance.state_size if step.state_size is None else step.state_size for step in steps]
    largest = max(states, default=instance.state_size)
    for level in document.get("storage", ()):
        if level.get("slots") is not None:  # the same bytes as before
            level["capacity"] = level.pop("slots") * largest
        for key in ("write_time", "read_time"):
            if key in level:
                level[key] = grown(level[key], factor)


def _scale(document: dict[str, Any], factor: Fraction) -> None:
    for key in _STAGE_TIMES:
        if document.get(key) is not None:
            time = document[key]
            by_type = isinstance(time, dict)
            document[key] = {k: grown(t, factor) for k, t in time.items()} if by_type else grown(time, factor)
    for key in _STAGE_SIZES:
        if document.get(key) is not None:
            document[key] = -(-document[key] * factor.numerator // factor.denominator)


def grown(time: Number, factor: Fraction) -> Number:
    """Return a time multiplied by a factor: exactly, and as an integer if possible."""
    product = Fraction(time) * factor
    whole = isinstance(time, int) and product.denominator == 1
    return product.numerator if whole else float(product)
