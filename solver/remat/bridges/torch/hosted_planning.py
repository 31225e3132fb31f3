"""Solves with a host: its machine, and the instance in which values of the caller stay resident."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.costs import Costs
from remat.bridges.torch.host_updates.planning import with_gradients_at_host
from remat.bridges.torch.plan_options import Choices
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.transfers import DEVICE, HOST, links_both_ways, measured_rate
from remat.instance import load
from remat.solving.entry import solve
from remat.solving.relative_budget import share_of
from remat.solving.result import Result
from remat.units import format_size, parse_budget

ALGORITHM = "dag-offload-best"


def machine_of(captured: Captured, choices: Choices, taken: int = 0) -> dict[str, Any]:
    """Return the document of a device without its occupied bytes, its host, and a link in each direction."""
    assert choices.host is not None
    rate = choices.link
    if rate is None:
        devices = [node.meta["val"].device for node in captured.graph.graph.find_nodes(op="placeholder")]
        rate = measured_rate(next(iter(devices)))
    return {
        "memories": [{"name": DEVICE}, {"name": HOST, "capacity": parse_budget(choices.host) - taken}],
        "processors": [{"name": "processor", "memory": DEVICE}],
        "links": links_both_ways(rate),
    }


def document_with_host(
    captured: Captured, choices: Choices, split: Mapping[str, int], costs: Costs, host: Mapping[str, int]
) -> dict[str, Any]:
    """Return the instance of a captured step with a host.

    Parameters
    ----------
    captured : Captured
    choices : Choices
        With `host`.
    split : mapping of str to int
        The fixed parts of the budget.
    costs : Costs
    host : mapping of str to int
        The fixed parts at the host, if the optimizer is there.

    Returns
    -------
    dict
        Results of the forward count throughout: the caller keeps them on the device.
    """
    reserve = split["reserve"]
    returned = {value: captured.joint.values[value] for value in captured.joint.returned}
    document = captured.document(costs, static=sum(split.values()) - reserve + sum(returned.values()))
    document["values"] = [one | ({"size": 0} if one["id"] in returned else {}) for one in document["values"]]
    document["machine"] = machine_of(captured, choices, sum(host.values()))
    return with_gradients_at_host(captured, document) if host else document


def solve_with_host(document: Mapping[str, Any], choices: Choices, reserve: int) -> Result:
    """Solve a captured step within the memory of a device and its host.

    Parameters
    ----------
    document : mapping
        See `document_with_host`.
    choices : Choices
    reserve : int
        Bytes of the budget that stay free.
    """
    given: dict[str, Any] = {}
    if choices.budget is not None:
        given["budget"] = {DEVICE: _device_budget(choices, reserve)}
    instance = load(dict(document))
    if choices.optimizer_memory is None:
        kept = solve(instance, algorithm="keep-all", **given)
        if kept.columns is not None:
            return kept
    algorithm = ALGORITHM if choices.algorithm == "auto" else choices.algorithm
    return solve(instance, algorithm=algorithm, options=choices.options, time_limit=choices.seconds, **given)


def _device_budget(choices: Choices, reserve: int) -> int | str:
    """Return the budget of the device without the reserve."""
    budget = choices.budget
    if not isinstance(budget, (int, str)):
        raise TorchError("a plan with a host takes one budget, for one training graph")
    if isinstance(budget, str) and share_of(budget) is not None:
        return budget
    whole = parse_budget(budget)
    if whole <= reserve:
        raise TorchError(f"the budget of {format_size(whole)} is all reserve ({format_size(reserve)})")
    return whole - reserve
