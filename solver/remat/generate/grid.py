"""Assembly trees of grid Laplacians, as in multifrontal solvers on a discretised square or cube."""

from __future__ import annotations

from math import prod

from remat.generate import check
from remat.generate.document import UNITLESS, Document, document

ORDERINGS = ("nd", "natural")

LARGEST_GRID = 1_000_000
"""Maximum number of points of a grid."""

LEAF = 4
"""Boxes of at most so many points are not dissected further."""


def grid2d(*, nx: int = 50, ny: int = 50, ordering: str = "nd", relax: int = 0) -> Document:
    """Return the assembly tree of the 5-point Laplacian on an nx x ny grid.

    Parameters
    ----------
    nx, ny : int
        Points along each side.
    ordering : {"nd", "natural"}
        Geometric nested dissection, or row by row.
    relax : int
        Amalgamation: nodes absorb children as long as they eliminate at most so many columns.

    Returns
    -------
    dict
        Kind ``tree``: f = cb^2, m = (eta + cb)^2 - cb^2, in entries.

    Raises
    ------
    ValueError
        A parameter out of range, or more than `LARGEST_GRID` points.
    """
    return _grid({"nx": nx, "ny": ny}, ordering, relax)


def grid3d(*, nx: int = 12, ny: int = 12, nz: int = 12, ordering: str = "nd", relax: int = 0) -> Document:
    """Return the assembly tree of the 7-point Laplacian on an nx x ny x nz grid (see `grid2d`)."""
    return _grid({"nx": nx, "ny": ny, "nz": nz}, ordering, relax)


def _grid(sides: dict[str, int], ordering: str, relax: int) -> Document:
    # numpy is needed for nothing else here.
    from remat.generate.sparse.assembly import Storage, assembly_tree
    from remat.generate.sparse.pattern import pattern_of

    shape = tuple(check.integer(name, side, minimum=1, maximum=LARGEST_GRID) for name, side in sides.items())
    check.choice("ordering", ordering, ORDERINGS)
    check.integer("relax", relax)
    points = prod(shape)
    if points > LARGEST_GRID:
        raise ValueError(f"{' * '.join(sides)} is {points:,}, above {LARGEST_GRID:,} points; lower one of them")
    rows, columns = _edges(shape)
    pattern = pattern_of(points, rows, columns)
    order = dissection(shape) if ordering == "nd" else range(points)
    tree = assembly_tree(pattern.permuted(order), relax=relax)
    body = tree.body(Storage())
    check.total([*body["output_size"], *body["workspace"]], "lower the sides")
    size = "x".join(map(str, shape))
    how = "nested dissection" if ordering == "nd" else "natural"
    return document(
        kind="tree",
        name=f"grid{len(shape)}d_{size}_{ordering}_r{relax}",
        description=f"Assembly tree of the {2 * len(shape) + 1}-point Laplacian on a {size} grid, {how} order, "
        f"{len(tree)} nodes, {tree.factor_entries} entries in the factor",
        units=UNITLESS,
        **body,
    )


def _edges(shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Return the pairs of neighbouring points; the first coordinate runs fastest."""
    rows: list[int] = []
    columns: list[int] = []
    stride, points = 1, prod(shape)
    for side in shape:
        inner = [point for point in range(points) if point // stride % side < side - 1]
        rows += inner
        columns += [point + stride for point in inner]
        stride *= side
    return rows, columns


def dissection(shape: tuple[int, ...]) -> list[int]:
    """Return the points of a box in geometric nested dissection order (George 1973).

    The plane in the middle of the longest side separates the halves, and comes after them.
    """
    strides = [prod(shape[:axis]) for axis in range(len(shape))]
    pieces: list[list[int]] = []
    stack = [tuple((0, side) for side in shape)]
    while stack:
        box = stack.pop()
        sides = [last - first for first, last in box]
        longest = sides.index(max(sides))
        if prod(sides) <= LEAF or sides[longest] < 3:
            pieces.append(_points(box, strides))
            continue
        first, last = box[longest]
        middle = (first + last) // 2
        for part in ((middle, middle + 1), (first, middle), (middle + 1, last)):
            piece = (*box[:longest], part, *box[longest + 1 :])
            if part[0] == middle:
                pieces.append(_points(piece, strides))
            else:
                stack.append(piece)
    # Each separator was listed before its halves.
    return [point for piece in reversed(pieces) for point in piece]


def _points(box: tuple[tuple[int, int], ...], strides: list[int]) -> list[int]:
    points = [0]
    for (first, last), stride in zip(reversed(box), reversed(strides), strict=True):
        points = [point + place * stride for point in points for place in range(first, last)]
    return points
