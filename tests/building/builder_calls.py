"""Documents of every kind as calls of the builder of that kind, with arrays of several types."""

import numpy as np

import remat
from remat.instance import load

PLACES = ("inputs", "outputs")
STAGES = {"name": "names", "backward_reads": "stage_backward_reads"}
STEP_KEYS = ("forward_time", "backward_time", "state_size", "adjoint_size", "tape_size", "tape_time")
LAYERS = {"name": "names", "backward_reads": "layer_backward_reads"}


def column(draw, entries):
    """A column as a list, a tuple, an array, or the scalar that all its entries are."""
    if all(entry == entries[0] and type(entry) is type(entries[0]) for entry in entries) and draw.random() < 0.5:
        return scalar(draw, entries[0])
    forms = [list, tuple]
    if set(map(type, entries)) <= {int}:
        forms += [lambda each: np.array(each, dtype=np.int64), lambda each: np.array(each, dtype=np.uint16)]
        forms += [lambda each: [np.int32(entry) for entry in each]]
    if set(map(type, entries)) <= {float}:
        forms += [lambda each: np.array(each, dtype=np.float64), lambda each: [np.float64(entry) for entry in each]]
    return draw.choice(forms)(entries)


def scalar(draw, value):
    """A number as it is, or as one of numpy's."""
    if type(value) is int and draw.random() < 0.5:
        return draw.choice([np.int64, np.uint16, np.array])(value)
    if type(value) is float and draw.random() < 0.5:
        return draw.choice([np.float64, np.array])(value)
    return value


def columns(draw, rows, called):
    """The columns of rows; None where a row leaves a field out."""
    found = {}
    for key in sorted({key for row in rows for key in row}):
        entries = [row.get(key) for row in rows]
        listed = any(isinstance(entry, (list, dict)) for entry in entries)
        found[called.get(key, key)] = entries if listed else column(draw, entries)
    if rows and not any(is_column(entry) for entry in found.values()):
        found["length"] = len(rows)
    return found


def is_column(value):
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) == 1


def common(document):
    """The arguments that all builders have."""
    keys = ("machine", "static_memory", "name", "description", "source")
    found = {key: document[key] for key in keys if key in document}
    units = document.get("units", {})
    found |= {"time_unit": units["time"]} if "time" in units else {}
    return found | ({"size_unit": units["memory"]} if "memory" in units else {})


def rest(document, *keys):
    """The arguments that are called as the keys of the document."""
    return {key: document[key] for key in keys if key in document}


def chain_arguments(document, draw):
    """The arguments of `remat.chain`."""
    given = common(document) | columns(draw, document["stages"], STAGES) | {"input_size": document["input_size"]}
    own = (
        "in_place",
        "backward_reads",
        "input_gradient",
        "parameter_memory",
        "optimizer_memory",
        "master_copy",
        "sharding",
        "staleness",
    )
    given |= rest(document, *own)
    given |= {f"loss_{key}": value for key, value in document.get("loss", {}).items()}
    return given


def adjoint_arguments(document, draw):
    """The arguments of `remat.adjoint`."""
    given = common(document) | rest(document, "storage", "initial_state")
    whole = {key: scalar(draw, document[key]) for key in STEP_KEYS if key in document}
    if isinstance(document["steps"], int):
        return given | whole | {"steps": document["steps"]}
    steps = document["steps"]
    return given | whole | {key: [step.get(key) for step in steps] for key in sorted({k for s in steps for k in s})}


def listed_adjoint(document):
    """An adjoint whose fields are either those of all steps, or listed for each."""
    if isinstance(document["steps"], int):
        return document
    keys = {"forward_time", *(key for step in document["steps"] for key in step)}
    whole = {key: document[key] for key in keys if key in document}
    rest_of = {key: value for key, value in document.items() if key not in keys}
    return rest_of | {"steps": [whole | step for step in document["steps"]]}


def tree_arguments(document, draw):
    """The arguments of `remat.tree`."""
    lists = ("parent", "output_size", "workspace", "time", "names")
    given = {key: document[key] if key == "parent" else column(draw, document[key]) for key in lists if key in document}
    return common(document) | given | rest(document, "orientation", "parallel")


def join_arguments(document, draw):
    """The arguments of `remat.join`."""
    units = {key: value for key, value in common(document).items() if key.endswith("_unit")}
    branches = [chain_arguments(chain, draw) for chain in document["chains"]]
    given = common(document) | {f"loss_{key}": value for key, value in document.get("loss", {}).items()}
    given |= rest(document, "in_place", "input_gradient", "backward_reads")
    chains = [remat.chain(**branch, **units) if draw.random() < 0.5 else branch for branch in branches]
    return given | {"chains": chains}


def pipeline_arguments(document, draw):
    """The arguments of `remat.pipeline`."""
    given = common(document) | columns(draw, document["layers"], LAYERS)
    own = ("micro_batches", "weights", "update_every", "copies", "exchange", "sharding", "samples", "sizes", "parts")
    given |= rest(document, *own, "tokens", "backward_reads")
    return given | document["cluster"]


def dag_arguments(document, draw):
    """The arguments of `remat.dag` with `reads` and `writes`."""
    names = [value["id"] for value in document["values"]]
    number = {name: name if draw.random() < 0.2 else index for index, name in enumerate(names)}
    tasks = document["tasks"]
    lists = {key: [[number[name] for name in task.get(key, ())] for task in tasks] for key in ("reads", "writes")}
    if draw.random() < 0.5 and not any(isinstance(called, str) for called in number.values()):
        lists = {key: csr(rows) for key, rows in lists.items()}
    optional = {"workspace": 0, "in_place": False, "required": True, "recomputable": True, "once": False, "phase": ""}
    own = {key: column(draw, [task.get(key, default) for task in tasks]) for key, default in optional.items()}
    own["time"] = column(draw, [task["time"] for task in tasks])
    further = {key: [task.get(key) for task in tasks] for key in ("parallel", "origin")}
    own |= {key: entries for key, entries in further.items() if any(entries)}
    given = common(document) | lists | own | rest(document, *PLACES, "pinned_inputs")
    given |= {"names": [task["id"] for task in tasks], "value_names": names}
    if draw.random() < 0.2:
        return given | {"size": {value["id"]: value["size"] for value in document["values"]}}
    return given | {"size": column(draw, [value["size"] for value in document["values"]])}


def csr(rows):
    """Lists of indices as two arrays."""
    start = np.cumsum([0, *map(len, rows)])
    return start, np.array([item for row in rows for item in row], dtype=np.int32)


def listed_dag(document):
    """A task graph with all its values listed."""
    sizes = {value["id"]: value["size"] for value in document["values"]}
    sizes |= {task["id"]: task["size"] for task in document["tasks"] if "size" in task}
    tasks = []
    for task in document["tasks"]:
        kept = {key: value for key, value in task.items() if key != "size"}
        tasks.append(kept | {"writes": task.get("writes", [task["id"]])})
    values = [{"id": name, "size": size} for name, size in sizes.items()]
    return document | {"values": values, "tasks": tasks}


ARGUMENTS = {
    "chain": chain_arguments,
    "adjoint": adjoint_arguments,
    "tree": tree_arguments,
    "join": join_arguments,
    "pipeline": pipeline_arguments,
    "dag": dag_arguments,
}


def builder_call(document, draw):
    """Return the instance of a document, the builder of its kind, and the arguments that make the same."""
    document = {"dag": listed_dag, "adjoint": listed_adjoint}.get(document["kind"], dict)(document)
    return load(document), getattr(remat, document["kind"]), ARGUMENTS[document["kind"]](document, draw)
