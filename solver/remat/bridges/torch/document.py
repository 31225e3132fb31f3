"""A joint graph as an instance of kind `dag`."""

from __future__ import annotations

from typing import Any

from remat.bridges.torch.costs import Costs
from remat.bridges.torch.joint import Joint, Task


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
        "schema": "remat.instance/1",
        "kind": "dag",
        "name": name,
        "source": f"PyTorch; times from {costs.source}",
        "units": {"time": "us", "memory": "B"},
        "static_memory": static,
        "values": [{"id": value, "size": size} for value, size in joint.values.items()],
        "tasks": [_task(joint, task, costs) for task in joint.tasks.values()],
        "outputs": list(joint.kept),
    }


def _task(joint: Joint, task: Task, costs: Costs) -> dict[str, Any]:
    """Return a task; the annotations that the digest leaves out (origin, shape, dtype) are to be added here."""
    node = joint.nodes.get(task.node)
    entry: dict[str, Any] = {
        "id": task.name,
        "time": 0 if node is None else costs.time(node, from_mask=task.from_mask),
        "reads": list(task.reads),
        "writes": list(task.writes),
        "phase": task.phase,
    }
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
