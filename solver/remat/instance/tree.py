"""Kind `tree`: a task tree, as in sparse factorisation."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from remat.instance.base import BaseInstance
from remat.instance.fields import Many, Name, ParentArray, SizeArray, TimeArray, check_total, fail
from remat.instance.tasks import Parallel


class TreeInstance(BaseInstance):
    """Flat arrays, one entry per node; the root's parent is -1."""

    kind: Literal["tree"] = Field(default="tree", description="Kind of the instance.")
    parent: ParentArray = Field(description="Number of the parent of each node; -1 for the root.")
    output_size: SizeArray = Field(description="Bytes of the value of each node.")
    workspace: SizeArray | None = Field(
        default=None, description="Additional bytes during the run of each node; null: 0."
    )
    time: TimeArray | None = Field(default=None, description="Time of each node; null: 1.")
    orientation: Literal["in", "out"] = Field(
        default="in", description="Direction: a node reads the values of its children (in), or writes them (out)."
    )
    names: Annotated[tuple[Name, ...], Field(), Many] | None = Field(default=None, description="Names of the nodes.")
    parallel: Parallel | None = Field(
        default=None, description="Rule for runs of nodes on several processors; null: one processor."
    )

    @property
    def length(self) -> int:
        """Number of nodes."""
        return len(self.parent)

    @model_validator(mode="after")
    def _shape(self) -> Self:
        n = len(self.parent)
        if n == 0:
            raise fail("the tree is empty; a tree has at least its root", ".parent")
        for key in ("output_size", "workspace", "time", "names"):
            array = getattr(self, key)
            if array is not None and len(array) != n:
                raise fail(f"{len(array)} entries for a tree of {n} nodes", f".{key}")
        if self.names is not None and len(set(self.names)) < n:
            raise fail("two nodes have the same name", ".names")
        _check_one_root(self.parent)
        check_total(self.static_memory + sum(self.output_size) + sum(self.workspace or ()), "the sizes of the tree")
        return self


def _check_one_root(parent: tuple[int, ...]) -> None:
    roots = [node for node, above in enumerate(parent) if above == -1]
    if len(roots) > 1:
        raise fail(f"two roots, nodes {roots[0]} and {roots[1]}; a tree has one (parent -1)", ".parent")
    # Without a root, or with nodes that do not reach it, some parents form a cycle.
    state = bytearray(len(parent))  # 0 unknown, 1 on the current path, 2 reaches the root
    for start in range(len(parent)):
        path = []
        node = start
        while node != -1 and state[node] == 0:
            state[node] = 1
            path.append(node)
            node = parent[node]
        if node != -1 and state[node] == 1:
            raise fail(f"the parents of node {node} run in a circle", f".parent[{node}]")
        for visited in path:
            state[visited] = 2
