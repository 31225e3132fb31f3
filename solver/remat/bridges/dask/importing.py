"""Documents of dask graphs (`remat.dask/1`) become task graphs."""

from __future__ import annotations

from typing import Any

from remat.bridges.placement_profiles.reading import Source, listed, name_of, number, read_source, size, text
from remat.errors import InstanceError
from remat.messages import brief

SCHEMA = "remat.dask/1"
KEYS = frozenset({"schema", "name", "tasks", "outputs"})
OF_TASKS = frozenset({"key", "time", "size", "reads"})


def import_graph(source: Source, *, name: str | None = None, recompute: bool = False) -> dict[str, Any]:
    """Convert a document written by `remat.bridges.dask.document` to a task graph.

    Parameters
    ----------
    source : path, open file or dict
    name : str, optional
        Default: the document's.
    recompute : bool
        Whether tasks may run more than once. dask runs each once.

    Returns
    -------
    dict
        An instance of kind ``dag``, in seconds and bytes.

    Raises
    ------
    InstanceError
        If the document is invalid; names the path in it.
    """
    document = read_source(source)
    if document.get("schema") != SCHEMA:
        raise InstanceError(f"expected a graph of dask ({SCHEMA}), not {brief(document.get('schema'))}", "$.schema")
    for key in document:
        if key not in KEYS:
            raise InstanceError(f"unknown key; known are {', '.join(sorted(KEYS))}", f"$.{key}")
    rows: list[dict[str, Any]] = []
    values: dict[str, int] = {}
    for index, entry in enumerate(listed(document, "tasks")):
        path = f"$.tasks[{index}]"
        for key in entry:
            if key not in OF_TASKS:
                raise InstanceError(f"unknown key; known are {', '.join(sorted(OF_TASKS))}", f"{path}.{key}")
        key = text(entry, "key", path)
        if not key or key in values:
            raise InstanceError(f"{'duplicate' if key else 'missing'} key {brief(key)}", f"{path}.key")
        values[key] = size(entry, "size", path)
        row: dict[str, Any] = {"id": key, "time": number(entry, "time", path), "reads": _texts(entry, "reads", path)}
        rows.append(row | {"writes": [key]} | ({} if recompute else {"once": True}))
    for index, row in enumerate(rows):
        for key in row["reads"]:
            if key not in values:
                raise InstanceError(f"there is no task {brief(key)}", f"$.tasks[{index}].reads")
    outputs = _texts(document, "outputs", "$")
    for key in outputs:
        if key not in values:
            raise InstanceError(f"there is no task {brief(key)}", "$.outputs")
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "name": name or text(document, "name", "$") or name_of(source, "dask"),
        "description": f"{len(rows):,} tasks of a dask graph" + ("" if recompute else ", each of which runs once"),
        "source": f"imported by: remat import dask {name_of(source, 'dask')}",
        "units": {"time": "s", "memory": "B"},
        "values": [{"id": key, "size": bytes_} for key, bytes_ in values.items()],
        "tasks": rows,
        "outputs": outputs,
    }


def _texts(entry: dict[str, Any], key: str, path: str) -> list[str]:
    found = entry.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InstanceError("expected a list of texts", f"{path}.{key}")
    return list(dict.fromkeys(found))
