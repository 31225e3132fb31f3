"""Answers to documents that say the same: other orders, other names, other scales, the lowered graph, a file."""

import copy
import dataclasses
import json
import math
import random

import remat
from remat.instance import instance_document
from remat.instance.digest import digest
from tests.fuzz import transformations
from tests.fuzz.budgets import plain
from tests.fuzz.judging import answer
from tests.fuzz.verdicts import Finding, may_stand_beside
from tests.oracles import lowering

SAME = ("permute_memories", "permute_processors", "permute_links", "rename_all", "scale_times", "scale_sizes")
"""Transformations after which the answer is the same: of schedules the makespan, and what is proved."""

NOT_WORSE = ("add_unused_memory",)
"""Transformations after which the answer is the same or better."""

AGREEING = ("permute_values", "permute_tasks", "as_graph")
"""Transformations that may change which of equal schedules is found; no claim may be refuted."""

NAMES = (*SAME, "permute_memories", *NOT_WORSE, *AGREEING)
FACTOR = 4
ASKED = 3
"""Number of solves of a case that are repeated."""

GRAPH_ALGORITHMS = ("auto", "dag-auto", "dag-exact", "keep-all")
"""Algorithms that solve the lowered graph."""

ANY_ROW = ("auto", "pipe-plan", "pipe-search")
"""Algorithms for pipelines that end for which the order of unlike devices does not matter; others take them as listed,
as ranks are."""

READ_NAMES = ("superneurons", "vdnn-all", "vdnn-conv", "vdnn-dyn", "vdnn-pp")
"""Algorithms that derive the operator from the name of a stage."""

PREFIX = "not-the-same-"


def invariance_findings(case, answers, focus=None):
    """Yield findings where an answer depends on how the instance is written down.

    Parameters
    ----------
    case : Case
    answers : sequence of Answer
    focus : str, optional
        The rule of a known finding: its transformation is applied to all solves.
    """
    rng = random.Random(f"{case.seed}/invariance")
    asked = [given for given in answers if given.result is not None and not given.limited]
    if focus is not None:
        name = focus.removeprefix(PREFIX).removeprefix("refused-").removeprefix("fails-")
        if name in NAMES:
            yield from _transformed(case, asked, name, rng)
        elif name == "in-a-file":
            yield from _in_a_file(case)
        return
    yield from _in_a_file(case)
    if any(solve.machine is not None for solve in case.solves):
        return  # transformations rewrite the instance only
    name = rng.choice(NAMES)
    if name == "as_graph":
        asked = [given for given in asked if given.solve.algorithm in GRAPH_ALGORITHMS]
    yield from _transformed(case, rng.sample(asked, min(ASKED, len(asked))), name, rng)


def _transformed(case, chosen, name, rng):
    document = _rewritten(name, plain(case.document), rng)
    if document is None:
        return
    for given in chosen:
        if name == "rename_all" and given.solve.algorithm in READ_NAMES:
            continue
        if name == "scale_times" and not given.result.no_recompute_time:
            continue  # if all times are 0, a period is one unit of time
        solve = _solve(name, given, case.document, document)
        again = answer(dataclasses.replace(case, document=document), solve)
        for finding in again.findings:
            message = f"written otherwise ({name}): {finding.rule}: {finding.message}"
            yield dataclasses.replace(finding, rule=f"fails-{name}", message=message, solves=(given.solve,))
        if again.result is not None and not again.limited:
            for message in _differing(_claim(name, case.document, given.solve.algorithm), given.result, again.result):
                yield Finding(PREFIX + name, given.solve.algorithm, message, (given.solve,))
        elif again.refusal and _claim(name, case.document, given.solve.algorithm) in SAME + NOT_WORSE:
            yield Finding(f"refused-{name}", given.solve.algorithm, again.refusal, (given.solve,))


def _claim(name, document, algorithm):
    """Return the transformation whose rule holds: that of tasks for devices in a row whose order is a choice."""
    if name != "permute_processors" or document["kind"] != "pipeline":
        return name
    ends = document.get("weights", "flush") == "flush" and "sharding" not in document
    devices = {(entry.get("type", entry["name"]), entry.get("memory")) for entry in document["cluster"]["devices"]}
    return name if len(devices) == 1 or (ends and algorithm in ANY_ROW) else "permute_tasks"


def _rewritten(name, document, rng):
    if name == "as_graph":
        return as_graph(document)
    if name in ("scale_times", "scale_sizes"):
        return getattr(transformations, name)(document, FACTOR)
    return getattr(transformations, name)(document, rng)


def _solve(name, given, before, after):
    """Return the solve for the other document: the same budget, in its names and sizes."""
    budget = given.solve.budget
    if name == "rename_all" and isinstance(budget, dict):
        names = transformations.new_names(plain(before), after)
        budget = {names.get(memory, memory): size for memory, size in budget.items()}
    if name == "scale_sizes" and budget is not None:
        scaled = isinstance(budget, dict)
        budget = {memory: size * FACTOR for memory, size in budget.items()} if scaled else budget * FACTOR
    return dataclasses.replace(given.solve, budget=budget, twice=False)


def _differing(name, one, other):
    """Yield differences between two results for equivalent documents."""
    times = FACTOR if name == "scale_times" else 1
    told = f"{one.status} {one.makespan!r}, and written otherwise {other.status} {other.makespan!r}"
    if name in SAME:
        # Above 2^62 times are floats, and an optimum is one up to rounding.
        rounded = one.makespan is not None and type(one.makespan) is not type(other.makespan)
        if (one.status != other.status and not rounded) or not _equal(one.makespan, other.makespan, times):
            yield told
        return
    if name in NOT_WORSE and not _not_worse(other, one):
        yield told
    for first, second in ((one, other), (other, one)):
        if first.status == "infeasible" and second.makespan is not None:
            yield f"infeasible, and written otherwise {second.makespan!r}"
        if second.columns is not None and not may_stand_beside(first.lower_bound, len(second.columns), second.makespan):
            yield f"bound {first.lower_bound!r}, and written otherwise makespan {second.makespan!r}"


def _not_worse(one, other):
    if None in (one.makespan, other.makespan):
        return other.makespan is None
    return may_stand_beside(one.makespan, 1, other.makespan)


def _equal(one, other, times):
    if None in (one, other):
        return one == other
    if isinstance(one, int) and isinstance(other, int):
        return one * times == other
    return math.isclose(one * times, other, rel_tol=1e-9)


def _in_a_file(case):
    """Yield a finding where an instance changes when it is written and read again."""
    loaded = remat.load(copy.deepcopy(case.document))
    again = remat.load(json.loads(json.dumps(instance_document(loaded))))
    if digest(again) != digest(loaded) or again.name != loaded.name:
        yield Finding(f"{PREFIX}in-a-file", "load", "an instance that is written and read is another one")


def as_graph(document):
    """Return the task graph of a chain, an adjoint, a tree or a join, or None if no document expresses it."""
    if document["kind"] not in ("chain", "adjoint", "tree", "join") or "sharding" in document:
        return None
    if any(document.get(key) is not None for key in ("staleness", "storage")) or "any" in map(str, document.values()):
        return None
    graph = lowering.lower(document)
    first = next(iter(lowering.machine(document).memories))
    tasks = []
    for name, task in graph.tasks.items():
        entry = {"id": name, "time": task.time, "reads": list(task.reads), "writes": list(task.writes)}
        entry |= {"workspace": task.workspace, "in_place": task.in_place}
        if task.once:
            entry["once"] = True
        else:
            entry |= {"required": task.required, "recomputable": task.recomputable}
        if task.parallel is not None:
            entry["parallel"] = task.parallel
        tasks.append(entry)
    places = {
        key: [value if memory in (None, first) else {"value": value, "memory": memory} for value, memory in listed]
        for key, listed in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }
    head = {"schema": "remat.instance/3", "kind": "dag", "units": document.get("units", {})}
    return {
        **head,
        **({"machine": document["machine"]} if document.get("machine") else {}),
        "static_memory": graph.static,
        "tasks": tasks,
        "values": [{"id": name, "size": size} for name, size in graph.values.items()],
        **places,
        "pinned_inputs": sorted(graph.pinned),
    }
