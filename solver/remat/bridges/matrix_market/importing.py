"""From a matrix to an instance: `remat import matrix`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from remat.bridges.matrix_market.matrix import read_matrix
from remat.errors import OptionError
from remat.generate.sparse.assembly import Storage, assembly_tree
from remat.generate.sparse.ordering import ORDERINGS

LARGEST_TOTAL = 2**62
"""Bound on the sizes of an instance, together."""


def import_matrix(
    path: str | os.PathLike[str],
    *,
    ordering: str = "amd",
    relax: int = 0,
    symmetric: bool = False,
    factors_in_core: bool = False,
    entry_bytes: int | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Return the assembly tree of a matrix as a document of kind `tree`.

    Parameters
    ----------
    path : path
        A Matrix Market file.
    ordering : {"natural", "amd", "nd", "rcm"}
    relax : int
        Amalgamation: a node absorbs children as long as it eliminates at most so many columns.
    symmetric : bool
        Fronts keep one triangle.
    factors_in_core : bool
        The factors count as static memory.
    entry_bytes : int, optional
        Bytes of an entry; without it sizes count entries.
    name : str, optional
        Default: the file's name and the ordering.

    Raises
    ------
    InstanceError
        See `read_matrix`.
    MissingExtraError
        For the ordering ``rcm`` without scipy.
    OptionError
        For an unknown ordering or an option out of range.
    """
    if ordering not in ORDERINGS:
        raise OptionError(f"{ordering!r} is not one of {', '.join(ORDERINGS)}", argument="ordering")
    if relax < 0:
        raise OptionError(f"{relax} is negative", argument="relax")
    if entry_bytes is not None and entry_bytes < 1:
        raise OptionError(f"an entry takes at least 1 byte, not {entry_bytes}", argument="entry_bytes")
    pattern = read_matrix(path)
    order = ORDERINGS[ordering](pattern)
    tree = assembly_tree(pattern.permuted(order), relax=relax)
    storage = Storage(symmetric=symmetric, factors_in_core=factors_in_core, entry_bytes=entry_bytes or 1)
    body = tree.body(storage)
    total = sum(body["output_size"]) + sum(body["workspace"]) + body.get("static_memory", 0)
    if total > LARGEST_TOTAL:
        raise OptionError(f"the sizes total {total:.3e}, above 2^62; lower it", argument="entry_bytes")
    file = Path(path).name
    stem = file.removesuffix(".gz").removesuffix(".mtx")
    given = {
        "ordering": ordering,
        "relax": relax or None,
        "symmetric": "" if symmetric else None,
        "factors": "in-core" if factors_in_core else None,
        "bytes": entry_bytes,
    }
    words = ["remat", "import", "matrix", file]
    for key, value in given.items():
        if value is not None:
            words += [f"--{key}", *([str(value)] if value != "" else [])]
    head = {
        "schema": "remat.instance/1",
        "kind": "tree",
        "name": name or f"{stem}.{ordering}.r{relax}",
        "description": f"Assembly tree of {stem}: {len(pattern)} columns, {pattern.entries} entries on and below the "
        f"diagonal, {tree.factor_entries} in the factor, {len(tree)} nodes, "
        f"{'symmetric' if symmetric else 'full'} fronts, factors {'in' if factors_in_core else 'out of'} core",
        "source": f"imported by: {shlex.join(words)}",
        "units": {"time": "unit", "memory": "unit" if entry_bytes is None else "B"},
    }
    return {**head, **body}
