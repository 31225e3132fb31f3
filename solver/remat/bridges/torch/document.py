"""A joint graph as an instance of kind `dag`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remat.bridges.torch.costs import Costs
from remat.bridges.torch.joint import Joint, Task
from remat.bridges.torch.recording import Held

if TYPE_CHECKING:
    from remat.bridges.torch.fusion import Fusion


def instance_document(
    joint: Joint, costs: Costs, *, name: str = "joint", static: int = 0, fusion: Fusion | None = None
) -> dict[str, Any]:
    """Return the instance document of a joint graph.

    Parameters
    ----------
    joint : Joint
    costs : Costs
        Times and workspaces.
    name : str
    static : int
        Bytes of static memory.
    fusion : Fusion, optional
        Its groups are the tasks; otherwise each operator is one.
    """
    tasks = joint.tasks.values() if fusion is None else [group.task for group in fusion.groups.values()]
    used = {value for task in tasks for value in (*task.reads, *task.writes)}
    return {
        "schema": "remat.instance/3",
        "kind": "dag",
        "name": name,
        "source": f"PyTorch; times from {costs.source}",
        "units": {"time": "us", "memory": "B"},
        "static_memory": static,
        "values": [entry for entry in _values(joint, fusion) if entry["id"] in used],
        "tasks": [_task(joint, task, costs, fusion) for task in tasks],
        "outputs": list(joint.kept),
    }


def _values(joint: Joint, fusion: Fusion | None) -> list[dict[str, Any]]:
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
        for value, size in (joint.values | ({} if fusion is None else fusion.copies.values)).items()
    ]


def _task(joint: Joint, task: Task, costs: Costs, fusion: Fusion | None) -> dict[str, Any]:
    """Return a task; its origin is for the reader and not part of the digest."""
    node = joint.nodes.get(task.node)
    group = None if fusion is None else fusion.groups[task.name]
    if fusion is None or group is None:
        time = 0 if node is None else costs.time(node, from_mask=task.from_mask)
        workspace = 0 if node is None else costs.workspace(node)
    else:
        time, workspace = fusion.time(group, costs), fusion.workspace(group, costs)
    entry: dict[str, Any] = {
        "id": task.name,
        "time": time,
        "reads": list(task.reads),
        "writes": list(task.writes),
        "phase": task.phase,
    }
    if node is not None:
        origin = {"module": node.module, "op": node.operator, "source": node.source}
        entry["origin"] = {key: text for key, text in origin.items() if text}
    if workspace:
        entry["workspace"] = workspace
    if task.from_mask or (group is not None and not group.required):
        entry["required"] = False
    elif task.once:
        entry["once"] = True
    elif not task.again:
        entry["recomputable"] = False
    return entry
