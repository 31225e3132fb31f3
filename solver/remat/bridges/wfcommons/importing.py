"""WfFormat: tasks with runtimes, and files with sizes, which become values.

A file that no task writes is present at the start; a file that no task reads must be present at the end. A parent and
child without a common file are linked by a value of size zero.
"""

from __future__ import annotations

from typing import Any

from remat.bridges.placement_profiles.reading import Source, listed, name_of, number, read_source, size, text
from remat.errors import InstanceError
from remat.messages import brief

VERSIONS = ("1.5", "1.6")


def import_workflow(source: Source, *, name: str | None = None, memory: bool = False) -> dict[str, Any]:
    """Make a task graph of a workflow.

    Parameters
    ----------
    source : path, open file or dict
    name : str, optional
        Default: the workflow's.
    memory : bool
        Whether the memory of a task's process (``memoryInBytes``) counts as its workspace.

    Returns
    -------
    dict
        An instance of kind ``dag``, in seconds and bytes.

    Raises
    ------
    InstanceError
        If the document is not a finished workflow of WfFormat 1.5 or 1.6; the message has the path.
    """
    document = read_source(source)
    version = text(document, "schemaVersion", "$")
    if version not in VERSIONS:
        raise InstanceError(f"expected WfFormat {' or '.join(VERSIONS)}, not {brief(version)}", "$.schemaVersion")
    workflow = _object(document, "workflow", "$")
    plan = _object(workflow, "specification", "$.workflow")
    run = _object(workflow, "execution", "$.workflow")
    tasks = listed(plan, "tasks", "$.workflow.specification")
    files = _Files(plan)
    times = _runs(run)
    names = _names(tasks)
    rows: list[dict[str, Any]] = []
    for index, task in enumerate(tasks):
        path = f"$.workflow.specification.tasks[{index}]"
        key = text(task, "id", path)
        if key not in times:
            raise InstanceError(f"there is no run of {brief(key)}", "$.workflow.execution.tasks")
        where, entry = times[key]
        row: dict[str, Any] = {"id": key, "time": number(entry, "runtimeInSeconds", where)}
        row["reads"] = files.known(task, "inputFiles", path)
        row["writes"] = files.known(task, "outputFiles", path)
        files.made(row["writes"], key, path)
        if memory and "memoryInBytes" in entry:
            row["workspace"] = size(entry, "memoryInBytes", where)
        rows.append(row)
    bare = _bare_parents(tasks, rows, names)
    values = [{"id": key, "size": bytes_} for key, bytes_ in files.sizes.items() if key in files.used]
    read = {key for row in rows for key in row["reads"]}
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "name": name or text(document, "name", "$") or name_of(source, "workflow"),
        "description": f"{len(rows):,} tasks and {len(values):,} files of a workflow (WfFormat {version})",
        "source": f"imported by: remat import wfcommons {name_of(source, 'workflow')}",
        "units": {"time": "s", "memory": "B"},
        "values": [*values, *({"id": key, "size": 0} for key in bare)],
        "tasks": rows,
        "inputs": [row["id"] for row in values if row["id"] not in files.writer],
        "outputs": [row["id"] for row in values if row["id"] not in read],
    }


class _Files:
    """The files of a workflow: sizes and producers."""

    def __init__(self, plan: dict[str, Any]) -> None:
        path = "$.workflow.specification"
        self.sizes: dict[str, int] = {}
        self.writer: dict[str, str] = {}
        self.used: set[str] = set()
        for index, entry in enumerate(listed(plan, "files", path) if "files" in plan else []):
            own = f"{path}.files[{index}]"
            key = text(entry, "id", own)
            if not key or key in self.sizes:
                raise InstanceError(f"{'duplicate' if key else 'missing'} id {brief(key)}", f"{own}.id")
            self.sizes[key] = size(entry, "sizeInBytes", own)

    def known(self, task: dict[str, Any], key: str, path: str) -> list[str]:
        """Return the files that a task lists, each once."""
        found = _texts(task, key, path)
        for name in found:
            if name not in self.sizes:
                raise InstanceError(f"the size of file {brief(name)} is unknown", f"{path}.{key}")
        self.used.update(found)
        return list(dict.fromkeys(found))

    def made(self, names: list[str], task: str, path: str) -> None:
        """Record the producer of files."""
        for name in names:
            other = self.writer.setdefault(name, task)
            if other != task:
                raise InstanceError(f"{brief(name)} is also written by {brief(other)}", f"{path}.outputFiles")


def _texts(task: dict[str, Any], key: str, path: str) -> list[str]:
    found = task.get(key) or []
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise InstanceError("expected a list of texts", f"{path}.{key}")
    return found


def _object(document: dict[str, Any], key: str, path: str) -> dict[str, Any]:
    found = document.get(key)
    if not isinstance(found, dict):
        hint = ": without a run, runtimes are unknown" if key == "execution" else ""
        raise InstanceError(f"expected an object{hint}", f"{path}.{key}")
    return found


def _runs(run: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for index, entry in enumerate(listed(run, "tasks", "$.workflow.execution")):
        path = f"$.workflow.execution.tasks[{index}]"
        found[text(entry, "id", path)] = (path, entry)
    return found


def _names(tasks: list[dict[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for index, task in enumerate(tasks):
        path = f"$.workflow.specification.tasks[{index}]"
        key = text(task, "id", path)
        if not key or key in found:
            raise InstanceError(f"{'duplicate' if key else 'missing'} id {brief(key)}", f"{path}.id")
        found[key] = index
    return found


def _bare_parents(tasks: list[dict[str, Any]], rows: list[dict[str, Any]], names: dict[str, int]) -> list[str]:
    """Add values without size for parents and children that share no file."""
    pairs: dict[tuple[int, int], None] = {}
    for index, task in enumerate(tasks):
        path = f"$.workflow.specification.tasks[{index}]"
        for key in ("parents", "children"):
            for name in _texts(task, key, path):
                if name not in names:
                    raise InstanceError(f"there is no task {brief(name)}", f"{path}.{key}")
                pairs[(index, names[name]) if key == "children" else (names[name], index)] = None
    made: list[str] = []
    for parent, child in pairs:
        if not set(rows[parent]["writes"]).intersection(rows[child]["reads"]):
            key = f"{rows[parent]['id']}->{rows[child]['id']}"
            made.append(key)
            rows[parent]["writes"].append(key)
            rows[child]["reads"].append(key)
    return made
