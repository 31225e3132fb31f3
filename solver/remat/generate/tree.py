"""Task trees of many shapes, and the family on which post-order is as bad as it gets.

Nodes are numbered so that children come before their parents and the root is last: the listed order is a
traversal of the in-tree. Nothing recurses; a million nodes take seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remat.generate import check
from remat.generate.document import UNITLESS, Document, document
from remat.generate.draw import Draw

ORIENTATIONS = ("in", "out")
METHODS = ("recursive", "prufer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Ranges of the nodes' figures, drawn uniformly; all trees but `postorder_trap` take them.

    Parameters
    ----------
    min_output, max_output : int
        Output sizes f; equal ends give equal sizes.
    max_workspace : int
        Workspaces m lie between 0 and this.
    min_time, max_time : int
        Times w.
    zero_probability : float
        Probability of each output size and workspace to be 0 instead.
    orientation : {"in", "out"}
    seed : int
    """

    min_output: int = 1
    max_output: int = 1000
    max_workspace: int = 0
    min_time: int = 1
    max_time: int = 100
    zero_probability: float = 0.0
    orientation: str = "in"
    seed: int = 0

    def draw(self) -> Draw:
        """Return the stream that draws first the shape, then the figures."""
        return Draw(check.seed(self.seed))


def random_tree(*, nodes: int = 1000, method: str = "recursive", max_children: int = 0, **weights: Any) -> Document:
    """Return a random tree.

    Parameters
    ----------
    nodes : int
    method : {"recursive", "prufer"}
        Recursive attachment (each node below a random earlier one: height about e*ln n), or a uniform
        labelled tree by its Pruefer sequence (height about sqrt(2 pi n)).
    max_children : int
        Most children of a node, for recursive attachment; 0 means any number. Two make a random binary
        tree, one a chain.
    **weights
        See `Weights`.

    Returns
    -------
    dict
        Kind ``tree``.

    Raises
    ------
    ValueError
        A parameter out of range, or sizes beyond 2^62.
    """
    _check_nodes(nodes)
    check.choice("method", method, METHODS)
    check.integer("max_children", max_children)
    if method == "prufer" and max_children:
        raise ValueError("max_children is for method recursive; leave it out, or use that method")
    figures = Weights(**weights)
    draw = figures.draw()
    parent = _prufer(nodes, draw) if method == "prufer" else _recursive(nodes, max_children, draw)
    shape = f"at most {max_children} children" if max_children else "any number of children"
    how = "uniform labelled (Pruefer)" if method == "prufer" else f"recursive attachment, {shape}"
    return _finish(f"random_tree_n{nodes}", f"Random tree, {how}", parent, draw, figures)


def binary_tree(*, nodes: int = 1000, **weights: Any) -> Document:
    """Return a random binary tree: recursive attachment with at most two children per node.

    Parameters
    ----------
    nodes : int
    **weights
        See `Weights`.
    """
    _check_nodes(nodes)
    figures = Weights(**weights)
    draw = figures.draw()
    return _finish(f"binary_tree_n{nodes}", "Random binary tree", _recursive(nodes, 2, draw), draw, figures)


def complete_tree(*, nodes: int = 1023, arity: int = 2, **weights: Any) -> Document:
    """Return a complete tree: every level full but perhaps the last.

    Parameters
    ----------
    nodes : int
    arity : int
        Children of an inner node.
    **weights
        See `Weights`.
    """
    _check_nodes(nodes)
    check.integer("arity", arity, minimum=1)
    above = [-1, *((i - 1) // arity for i in range(1, nodes))]
    return _shaped(f"complete_tree_n{nodes}_k{arity}", f"Complete {arity}-ary tree", above, weights)


def chain_tree(*, nodes: int = 1000, **weights: Any) -> Document:
    """Return a tree of one branch (see `Weights` for the other parameters)."""
    _check_nodes(nodes)
    return _shaped(f"chain_tree_n{nodes}", "Chain", range(-1, nodes - 1), weights)


def star_tree(*, nodes: int = 1000, **weights: Any) -> Document:
    """Return a root with `nodes` - 1 leaves (see `Weights` for the other parameters)."""
    _check_nodes(nodes)
    return _shaped(f"star_tree_n{nodes}", "Star", [-1] + [0] * (nodes - 1), weights)


def caterpillar_tree(*, nodes: int = 1000, legs: int = 1, **weights: Any) -> Document:
    """Return a chain with leaves hanging from each of its nodes.

    Parameters
    ----------
    nodes : int
    legs : int
        Leaves per node of the spine (the lowest may have fewer).
    **weights
        See `Weights`.
    """
    _check_nodes(nodes)
    check.integer("legs", legs)
    segment = legs + 1  # a spine node, then its leaves
    above = [(i - 1 if segment == 1 else i - segment if i % segment == 0 else i - i % segment) for i in range(1, nodes)]
    return _shaped(f"caterpillar_n{nodes}_legs{legs}", f"Caterpillar, {legs} leaves per node", [-1, *above], weights)


def postorder_trap(*, depth: int = 3, branches: int = 3, memory: int = 300, epsilon: int = 1) -> Document:
    """Return the family T_K on which the best post-order is arbitrarily worse than the optimum.

    Its root (f = 0) has b branches. Each branch is a path of u (f = M/b), v (f = eps) and w (f = M), from top to
    bottom. For K > 1, the child of each w is the root of T_(K-1), with f = eps. The best post-order needs
    M + eps + K(b-1)M/b, the best traversal M + eps + K(b-1)eps (Jacquelin, Marchal, Robert and Ucar 2011, *On optimal
    tree traversals for sparse matrix factorization*).

    Parameters
    ----------
    depth : int
        K.
    branches : int
        b.
    memory : int
        M, a multiple of `branches`.
    epsilon : int
        eps.

    Returns
    -------
    dict
        Kind ``tree``, no workspaces, unit times.

    Raises
    ------
    ValueError
        A parameter out of range, M not a multiple of b, or more than 10 million nodes.
    """
    check.integer("depth", depth, minimum=1, maximum=64)
    check.integer("branches", branches, minimum=1, maximum=check.LARGEST_COUNT)
    check.integer("memory", memory, minimum=1)
    check.integer("epsilon", epsilon, minimum=1)
    if memory % branches:
        raise ValueError(
            f"memory {memory} is not a multiple of branches {branches}; take {memory - memory % branches + branches}"
        )
    nodes = 0
    for _ in range(depth):
        nodes = 1 + branches * (3 + nodes)
        _check_nodes(nodes, "depth and branches give a tree whose node count")
    above, output = [-1], [0]
    roots = [0]
    for level in range(depth):
        below = []
        for root in roots:
            for _ in range(branches):
                node = len(above)
                above += (root, node, node + 1)
                output += (memory // branches, epsilon, memory)
                if level + 1 < depth:
                    above.append(node + 2)
                    output.append(epsilon)
                    below.append(node + 3)
        roots = below
    check.total(output, "lower memory, depth or branches")
    return document(
        kind="tree",
        name=f"postorder_trap_k{depth}_b{branches}",
        description=f"The family T_K, K = {depth}, b = {branches}, M = {memory}, eps = {epsilon}: best post-order "
        f"{memory + epsilon + depth * (branches - 1) * memory // branches}, "
        f"optimum {memory + epsilon + depth * (branches - 1) * epsilon}",
        units=UNITLESS,
        parent=_children_first(above),
        output_size=output[::-1],
    )


def _check_nodes(nodes: int, name: str = "nodes") -> None:
    check.integer(name, nodes, minimum=1, maximum=check.LARGEST_COUNT)


def _children_first(above: range | list[int]) -> list[int]:
    """Renumber a tree whose parents come first, so that children do."""
    last = len(above) - 1
    return [last - p for p in reversed(above[1:])] + [-1]


def _recursive(nodes: int, max_children: int, draw: Draw) -> list[int]:
    above = [-1]
    if not max_children:
        above += [draw.integer(0, i - 1) for i in range(1, nodes)]
        return _children_first(above)
    room = [max_children]
    open_nodes = [0]
    for node in range(1, nodes):
        slot = draw.integer(0, len(open_nodes) - 1)
        chosen = open_nodes[slot]
        above.append(chosen)
        room[chosen] -= 1
        if not room[chosen]:
            open_nodes[slot] = open_nodes[-1]
            open_nodes.pop()
        room.append(max_children)
        open_nodes.append(node)
    return _children_first(above)


def _prufer(nodes: int, draw: Draw) -> list[int]:
    """Decode a random Pruefer sequence in linear time, then number the nodes from the root down."""
    if nodes == 1:
        return [-1]
    sequence = [draw.integer(0, nodes - 1) for _ in range(nodes - 2)]
    degree = [1] * nodes
    for node in sequence:
        degree[node] += 1
    above = [-1] * nodes
    pointer = leaf = degree.index(1)
    for node in sequence:
        above[leaf] = node
        degree[node] -= 1
        if degree[node] == 1 and node < pointer:
            leaf = node
        else:
            pointer = degree.index(1, pointer + 1)
            leaf = pointer
    above[leaf] = nodes - 1  # the last node is never removed: the root
    children: list[list[int]] = [[] for _ in range(nodes)]
    for node in range(nodes - 1):
        children[above[node]].append(node)
    order = [nodes - 1]
    for node in order:
        order += children[node]
    place = [0] * nodes
    for position, node in enumerate(order):
        place[node] = position
    return _children_first([-1] + [place[above[node]] for node in order[1:]])


def _shaped(name: str, description: str, above: range | list[int], weights: dict[str, Any]) -> Document:
    figures = Weights(**weights)
    return _finish(name, description, _children_first(above), figures.draw(), figures)


def _finish(name: str, description: str, parent: list[int], draw: Draw, figures: Weights) -> Document:
    """Draw the nodes' figures after the shape."""
    least, most = check.bounds("min_output", figures.min_output, "max_output", figures.max_output)
    quickest, slowest = check.bounds("min_time", figures.min_time, "max_time", figures.max_time)
    workspace = check.integer("max_workspace", figures.max_workspace)
    zero = check.probability("zero_probability", figures.zero_probability)
    orientation = check.choice("orientation", figures.orientation, ORIENTATIONS)
    nodes = len(parent)
    check.total([nodes * (most + workspace)], "lower max_output, max_workspace or nodes")
    workspaces = f"workspaces up to {workspace}" if workspace else "no workspaces"
    return document(
        kind="tree",
        name=f"{name}_seed{figures.seed}",
        description=f"{description}, {nodes} nodes, output sizes {least} to {most}, {workspaces}, "
        f"times {quickest} to {slowest}, seed {figures.seed}",
        units=UNITLESS,
        parent=parent,
        output_size=[draw.size(least, most, zero) for _ in range(nodes)],
        workspace=[draw.size(0, workspace, zero) for _ in range(nodes)] if workspace else None,
        time=None if quickest == slowest == 1 else [draw.integer(quickest, slowest) for _ in range(nodes)],
        orientation=None if orientation == "in" else orientation,
    )
