"""Graphs of collections: documents for the importer, and priorities that reduce peak memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from remat.bridges.dask.importing import SCHEMA, import_graph
from remat.errors import MissingExtraError, OptionError

Key = Any
Sizes = Mapping[Key, int] | Callable[[Key], int | None]


@dataclass(frozen=True, slots=True)
class _Graph:
    """A low-level graph: keys in order, the keys that each reads, and the requested keys."""

    keys: list[Key]
    reads: dict[Key, list[Key]]
    outputs: list[Key]
    tasks: dict[Key, Any]


def document(
    collection: Any, *, sizes: Sizes | None = None, measure: bool = False, optimize: bool = True
) -> dict[str, Any]:
    """Return the graph of a collection as a document of `remat.dask/1`: keys, sizes, times, no code and no data.

    Parameters
    ----------
    collection : dask collection, or a sequence of them
    sizes : mapping or callable, optional
        Bytes of a key's result, or None if unknown.
    measure : bool
        Run the graph here, task by task, and measure the time and result size of each.
    optimize : bool
        Whether the graph is optimized first, as `compute` does.

    Returns
    -------
    dict
        Without `sizes` and `measure`, the size of an array's chunk is that of its layer's chunks; other keys have the
        size of the largest chunk that they read. Times are then 1 second each.

    Raises
    ------
    MissingExtraError
        Without dask.
    OptionError
        For an object without a graph.
    """
    return _document(_graph(collection, optimize=optimize), collection, sizes, measure=measure)


def _document(graph: _Graph, collection: Any, sizes: Sizes | None, *, measure: bool) -> dict[str, Any]:
    if measure:
        bytes_, seconds = _measured(graph)
    else:
        bytes_, seconds = _estimated(graph, collection, sizes), dict.fromkeys(graph.keys, 1.0)
    names = _names(graph.keys)
    return {
        "schema": SCHEMA,
        "name": type(collection).__name__.lower() if not isinstance(collection, (list, tuple)) else "collections",
        "tasks": [
            {
                "key": names[key],
                "time": seconds[key],
                "size": bytes_[key],
                "reads": [names[read] for read in graph.reads[key]],
            }
            for key in graph.keys
        ],
        "outputs": [names[key] for key in graph.outputs],
    }


def order(
    collection: Any,
    budget: int | str | None = None,
    *,
    sizes: Sizes | None = None,
    measure: bool = False,
    optimize: bool = True,
    time_limit: float | str = "10s",
) -> dict[Key, int]:
    """Return a priority for each key, 0 first: an order for a single worker with a small memory peak.

    Parameters
    ----------
    collection, sizes, measure, optimize
        As of `document`.
    budget : int or str, optional
        Limit on the order's peak; default: minimize the peak.
    time_limit : float or str
        For the search.

    Returns
    -------
    dict
        Its peak is at most that of `dask.order.order`, which is the fallback.

    Raises
    ------
    MissingExtraError, OptionError
        As `document`; also if no order within the budget is found.
    """
    graph = _graph(collection, optimize=optimize)
    made = _document(graph, collection, sizes, measure=measure)
    from dask.order import order as usual

    bytes_ = {key: row["size"] for key, row in zip(graph.keys, made["tasks"], strict=True)}
    ranks = usual(graph.tasks)
    best = sorted(graph.keys, key=lambda key: ranks[key])
    least = peak(best, graph.reads, bytes_, graph.outputs)
    limit = None if budget is None else _bytes(budget)
    if limit is None or least > limit:
        found = _searched(graph, made, limit, time_limit)
        if found is not None and (size := peak(found, graph.reads, bytes_, graph.outputs)) < least:
            best, least = found, size
    if limit is not None and least > limit:
        raise OptionError(f"{limit:,} bytes are less than the {least:,} of the best order found", argument="budget")
    return {key: rank for rank, key in enumerate(best)}


def peak(
    order: Iterable[Key], reads: Mapping[Key, Iterable[Key]], sizes: Mapping[Key, int], outputs: Iterable[Key]
) -> int:
    """Return the peak bytes of an order: each result is held from its task's start to its last reader's end."""
    listed = list(order)
    last: dict[Key, int] = {key: index for index, key in enumerate(listed)}
    for index, key in enumerate(listed):
        for read in reads[key]:
            last[read] = max(last[read], index)
    for key in outputs:
        last[key] = len(listed)
    held = most = 0
    ends: dict[int, int] = {}
    for key, index in last.items():
        ends[index] = ends.get(index, 0) + sizes[key]
    for index, key in enumerate(listed):
        held += sizes[key]
        most = max(most, held)
        held -= ends.get(index, 0)
    return most


def _searched(graph: _Graph, made: dict[str, Any], limit: int | None, time_limit: float | str) -> list[Key] | None:
    """Return the order of a schedule, or None if none is found."""
    from remat.instance import instance_from_document
    from remat.solving.entry import solve
    from remat.solving.questions.least_budget import least_budget

    instance = instance_from_document(import_graph(made))
    if limit is None:
        result = least_budget(instance, time_limit=time_limit)
    else:
        result = solve(instance, budget=limit, time_limit=time_limit)
    names = _names(graph.keys)
    keys = {name: key for key, name in names.items()}
    return [keys[task] for task in result.order] or None


def _graph(collection: Any, *, optimize: bool) -> _Graph:
    """Return the low-level graph of one or several collections."""
    try:
        from dask.base import is_dask_collection
        from dask.base import optimize as optimized
        from dask.core import flatten, get_dependencies
    except ImportError:
        raise MissingExtraError("a graph of dask", "dask", "dask") from None
    listed = list(collection) if isinstance(collection, (list, tuple)) else [collection]
    if not listed or not all(is_dask_collection(each) for each in listed):
        raise OptionError(f"expected a collection of dask, not {type(collection).__name__}", argument="collection")
    tasks: dict[Key, Any] = {}
    for each in optimized(*listed) if optimize else listed:  # type: ignore[no-untyped-call]
        tasks.update(each.__dask_graph__())
    wanted = [key for each in listed for key in flatten(each.__dask_keys__())]  # type: ignore[no-untyped-call]
    outputs = list(dict.fromkeys(wanted))
    reads = {key: sorted((read for read in get_dependencies(tasks, key) if read != key), key=str) for key in tasks}
    return _Graph(_topological(tasks, reads), reads, [key for key in outputs if key in tasks], tasks)


def _topological(tasks: Iterable[Key], reads: Mapping[Key, list[Key]]) -> list[Key]:
    """Return the keys in topological order, depth first, so that neighbours stay together."""
    done: dict[Key, None] = {}
    for start in tasks:
        stack = [(start, iter(reads[start]))] if start not in done else []
        while stack:
            key, waiting = stack[-1]
            following = next((read for read in waiting if read not in done), None)
            if following is None:
                done[key] = None
                stack.pop()
            else:
                stack.append((following, iter(reads[following])))
    return list(done)


def _names(keys: Iterable[Key]) -> dict[Key, str]:
    return {key: str(key) for key in keys}


def _bytes(budget: int | str) -> int:
    from remat.errors import QuantityError
    from remat.units import parse_budget

    try:
        return parse_budget(budget)
    except QuantityError as error:
        raise OptionError(str(error), argument="budget") from None


def _estimated(graph: _Graph, collection: Any, sizes: Sizes | None) -> dict[Key, int]:
    """Return sizes: given sizes, chunk sizes, or the size of the largest chunk that a key reads."""
    known = _chunks(collection)
    found: dict[Key, int] = {}
    for key in graph.keys:
        given = sizes(key) if callable(sizes) else None if sizes is None else sizes.get(key)
        own = known(key) if given is None else given
        found[key] = max((found[read] for read in graph.reads[key]), default=0) if own is None else int(own)
    return found


def _chunks(collection: Any) -> Callable[[Key], int | None]:
    """Return a function that looks up the bytes of a layer's chunks."""
    layers: dict[str, tuple[Any, int]] = {}
    for each in collection if isinstance(collection, (list, tuple)) else [collection]:
        for name, layer in getattr(each.__dask_graph__(), "layers", {}).items():
            about = getattr(layer, "collection_annotations", None) or {}
            if about.get("chunks") is not None and about.get("dtype") is not None:
                layers[name] = (about["chunks"], about["dtype"].itemsize)

    def size(key: Key) -> int | None:
        if not isinstance(key, tuple) or key[0] not in layers:
            return None
        chunks, itemsize = layers[key[0]]
        index = key[1:]
        if len(index) != len(chunks) or not all(
            isinstance(k, int) and 0 <= k < len(axis) for k, axis in zip(index, chunks, strict=True)
        ):
            return None
        found = prod(axis[k] for k, axis in zip(index, chunks, strict=True)) * itemsize
        return int(found) if found == found else None  # a chunk of unknown length is NaN

    return size


def _measured(graph: _Graph) -> tuple[dict[Key, int], dict[Key, float]]:
    """Run the graph, and return bytes and seconds of each key."""
    from dask.sizeof import sizeof

    readers = dict.fromkeys(graph.keys, 0)
    for key in graph.keys:
        for read in graph.reads[key]:
            readers[read] += 1
    from dask._task_spec import convert_legacy_graph

    tasks = convert_legacy_graph(graph.tasks)
    made: dict[Key, Any] = {}
    bytes_: dict[Key, int] = {}
    seconds: dict[Key, float] = {}
    for key in graph.keys:
        task = tasks[key]
        begun = time.perf_counter()
        made[key] = task({read: made[read] for read in graph.reads[key]})
        seconds[key] = time.perf_counter() - begun
        bytes_[key] = int(sizeof(made[key]))
        for read in graph.reads[key]:
            readers[read] -= 1
            if not readers[read]:
                del made[read]
    return bytes_, seconds
