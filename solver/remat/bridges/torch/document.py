"""A joint graph as an instance of kind `dag`."""

from __future__ import annotations

from typing import Any

from remat.bridges.torch.costs import Costs
from remat.bridges.torch.joint import Joint, Task
from remat.bridges.torch.recording import Held


def instance_document(joint: Joint, costs: Costs, *, name: str = "joint", static: int = 0) -> dict[str, Any]:
    """Return the instance document of a joint graph.

    Parameters
    ----------
    joint : Joint
    costs : Costs
        Times and workspaces.
    name : str
    static : int
        Bytes that lie in memory throughout.
    """
    return {
        "schema": "remat.instance/3",
        "kind": "dag",
        "name": name,
        "source": f"PyTorch; times from {costs.source}",
        "units": {"time": "us", "memory": "B"},
        "static_memory": static,
        "values": _values(joint),
        "tasks": [_task(joint, task, costs) for task in joint.tasks.values()],
        "outputs": list(joint.kept),
    }


def _values(joint: Joint) -> list[dict[str, Any]]:
    """Return the values, each with shape and type of the tensor that made its storage."""
    made: dict[str, Held] = {}
    for node in joint.recording.nodes:
        for index, tensor in enumerate(node.tensors):
            name = f"{node.name}.{index}" if node.several else node.name
            if tensor is not None and name in joint.values:
                made[name] = tensor
    return [
        {"id": value, "size": size}
        | ({"shape": list(made[value].shape), "dtype": made[value].dtype} if value in made else {})
        for value, size in joint.values.items()
    ]


def _task(joint: Joint, task: Task, costs: Costs) -> dict[str, Any]:
    """Return a task; where it comes from is for people, and not part of the digest."""
    node = joint.nodes.get(task.node)
    entry: dict[str, Any] = {
        "id": task.name,
        "time": 0 if node is None else costs.time(node, from_mask=task.from_mask),
        "reads": list(task.reads),
        "writes": list(task.writes),
        "phase": task.phase,
    }
    if node is not None:
        origin = {"module": node.module, "op": node.operator, "source": node.source}
        entry["origin"] = {key: text for key, text in origin.items() if text}
    workspace = 0 if node is None else costs.workspace(node)
    if workspace:
        entry["workspace"] = workspace
    if task.from_mask:
        entry["required"] = False
    elif task.once:
        entry["once"] = True
    elif not task.again:
        entry["recomputable"] = False
    return entry
