"""The parts of a generated chain's static memory, recovered from the command that made it."""

from __future__ import annotations

import os
from typing import Any

from remat.generate import FAMILIES, generate
from remat.generate.source_command import generated_by
from remat.graph.taskgraph import GATHERED, GRADIENTS, PARAMETERS, STATES

RESERVE = "reserve"


def static_split(source: str | None, static: int) -> dict[str, int]:
    """Return the bytes of parameters, gradients, optimizer states and the reserve, in the order of pictures.

    Empty for other instances, and if the parts are not the given bytes together: the instance was changed, or is of
    another release. A configuration that is a file is read again.
    """
    made = generated_by(source) if static else None
    if made is None or made[0] != "chain":
        return {}
    try:
        found = {"transformer": _of_transformer, "model": _of_model}[made[1]](made[2], static)
    except (KeyError, ValueError):
        return {}
    return {term: size for term, size in found.items() if size} if sum(found.values()) == static else {}


def _of_transformer(parameters: dict[str, Any], static: int) -> dict[str, int]:
    """Generate the transformer with parameters as values."""
    if parameters.get("frozen"):
        return {PARAMETERS: static}
    document = generate("chain", "transformer", **parameters | {"parameters": "device", "states": "device"})
    found: dict[str, int] = {PARAMETERS: 0, STATES: 0, GRADIENTS: 0}
    for stage in document["stages"]:
        count, size = stage.get("repeat", 1), stage.get("parameter_size", 0)
        found[PARAMETERS] += count * size
        found[GRADIENTS] += count * stage.get("parameter_gradient_size", size)
        found[STATES] += count * stage.get("optimizer_size", 0)
    return found


def _of_model(parameters: dict[str, Any], static: int) -> dict[str, int]:
    """Count the bytes of a configured model."""
    from remat.generate.models.chains import training_of, workload_of
    from remat.generate.models.memory import static_of
    from remat.generate.models.reading import read_model, shipped

    asked: dict[str, Any] = {
        parameter.name: parameter.default for parameter in FAMILIES["chain/model"].parameters
    } | parameters
    reserve = {RESERVE: asked["reserve"]}
    if asked["parameters"] not in (None, "static") or asked["states"] is not None:
        return reserve
    if asked["config"] not in shipped() and not os.path.isfile(asked["config"]):
        return {}
    fixed = static_of(workload_of(read_model(asked["config"]), asked), training_of(asked))
    of_model = {PARAMETERS: fixed.parameters, STATES: fixed.states, GRADIENTS: fixed.gradients}
    return of_model | {GATHERED: fixed.gathered} | reserve
