"""`remat.tree`: a task tree from the array of parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from remat.building.columns import common_length, listed
from remat.building.common import Column, Common, build, builder, head
from remat.building.edges import is_graph
from remat.errors import InstanceError
from remat.instance.native import native

if TYPE_CHECKING:
    from remat.instance.tree import TreeInstance


@builder(Common)
def tree(
    parent: Column,
    *,
    output_size: Column,
    workspace: Column = None,
    time: Column = None,
    names: Sequence[str] | None = None,
    orientation: Literal["in", "out"] = "in",
    parallel: Mapping[str, Any] | None = None,
    **common: Unpack[Common],
) -> TreeInstance:
    """Build a task tree.

    Parameters
    ----------
    parent : sequence or array of int
        The parent of each node, by its number; -1 for the root.
    output_size : column
        Bytes of the value of each node: an entry for all, or one for each.
    workspace, time : column, optional
        Default: no workspace, and time 1.
    names : sequence of str, optional
    orientation : {"in", "out"}
        ``in``: a node reads the values of its children. ``out``: it writes them.
    parallel : dict, optional
        How a task runs on several processors: ``{"max": 8, "alpha": 0.9}``.
    **common
        `time_unit`, `size_unit`, `machine`, `static_memory`, `name`, `description`, `source`.

    Returns
    -------
    TreeInstance

    Raises
    ------
    remat.InstanceError
        Names the argument, the index and the value.

    Examples
    --------
    >>> import remat
    >>> remat.tree([-1, 0, 0], output_size=[5, 3, 4]).length
    3
    """
    if is_graph(parent):
        raise InstanceError("a graph; give the number of each node's parent as a sequence, -1 for the root", "parent")
    columns = listed(
        {"parent": parent, "output_size": output_size, "workspace": workspace, "time": time, "names": names}
    )
    for key in ("parent", "output_size"):
        if key not in columns:
            raise InstanceError("None is not a column", key)
    if not isinstance(columns["parent"], list):
        raise InstanceError("give a sequence: the parent of each node, -1 for the root", "parent")
    count = common_length(columns, what="nodes")
    document = head("tree", dict(common)) | {"orientation": native(orientation)}
    for key, column in columns.items():
        document[key] = column if isinstance(column, list) else [column] * count
    if parallel is not None:
        document["parallel"] = native(parallel)
    scalars = [key for key, column in columns.items() if not isinstance(column, list)]
    rules = [(rf"^\$\.{key}\[\d+\]", key) for key in scalars]
    return cast("TreeInstance", build(document, rules))
