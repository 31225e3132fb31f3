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
from tests.fuzz.cases import plain
from tests.fuzz.judging import Finding, answer, may_stand_beside
from tests.oracles import lowering

SAME = ("permute_memories", "permute_processors", "permute_links", "rename_all", "add_unused_memory")
"""Ways to say the same, after which the answer is the same: of schedules the makespan, and what is proved."""

AGREEING = ("permute_values", "permute_tasks", "as_graph")
"""Ways to say the same that may change who wins a tie; no claim may be refuted."""

SCALED = ("scale_times", "scale_sizes")
FACTOR = 4
ASKED = 3
"""Solves of a case that are asked again."""

LIMITED = {"time limit", "interrupted", "patience over"}


def unlike(case, answers):
    """Yield findings where an answer depends on how the instance is written down."""
    rng = random.Random(f"{case.seed}/invariance")
    yield from _unlike_in_a_file(case)
    asked = [given for given in answers if given.result is not None and not _limited(given)]
    name = rng.choice(SAME + AGREEING + SCALED)
    document = _rewritten(name, plain(case.document), rng)
    if document is None or not asked:
        return
    chosen = rng.sample(asked, min(ASKED, len(asked)))
    if name == "as_graph":
        chosen = [given for given in asked if given.solve.algorithm in ("auto", "dag-auto", "dag-exact", "keep-all")]
    for given in chosen:
        solve = _solve(name, given, case.document, document)
        again = answer(dataclasses.replace(case, document=document), solve)
        yield from again.findings
        if again.result is not None and not _limited(again):
            for message in _differing(name, given.result, again.result):
                yield Finding(f"not-the-same-{name}", given.solve.algorithm, message, (given.solve,))
        elif again.refusal and name in SAME:
            yield Finding(f"refused-{name}", given.solve.algorithm, again.refusal, (given.solve,))


def _limited(given):
    return str(given.result.termination) in LIMITED


def _rewritten(name, document, rng):
    if name == "as_graph":
        return as_graph(document)
    if name in SCALED:
        return getattr(transformations, name)(document, FACTOR)
    return getattr(transformations, name)(document, rng)


def _solve(name, given, before, after):
    """Return the solve for the other document: budgets by name, since what a bare one means is another question."""
    budget = {memory.name: memory.capacity for memory in given.result.machine.memories if memory.capacity is not None}
    if name == "rename_all":
        names = transformations.new_names(plain(before), after)
        budget = {names[memory]: size for memory, size in budget.items()}
    if name == "scale_sizes":
        budget = {memory: size * FACTOR for memory, size in budget.items()}
    return dataclasses.replace(given.solve, budget=budget or None, twice=False)


def _differing(name, one, other):
    """Yield what is not the same in two results for documents that say the same."""
    times = FACTOR if name == "scale_times" else 1
    if name in SAME:
        if one.status != other.status or not _equal(one.makespan, other.makespan):
            yield f"{one.status} {one.makespan!r}, and written otherwise {other.status} {other.makespan!r}"
        return
    for first, second, factor in ((one, other, times), (other, one, 1 / times)):
        if first.status == "infeasible" and second.makespan is not None:
            yield f"infeasible, and written otherwise {second.makespan!r}"
        if second.makespan is not None and second.columns is not None:
            bound = first.lower_bound * factor
            if not may_stand_beside(bound, len(second.columns), second.makespan):
                yield f"bound {first.lower_bound!r}, and written otherwise makespan {second.makespan!r}"


def _equal(one, other):
    return one == other if None in (one, other) else math.isclose(one, other, rel_tol=1e-9)


def _unlike_in_a_file(case):
    """Yield a finding where an instance is another one when it is written and read again."""
    loaded = remat.load(copy.deepcopy(case.document))
    again = remat.load(json.loads(json.dumps(instance_document(loaded))))
    if digest(again) != digest(loaded) or again.name != loaded.name:
        yield Finding("not-the-same-in-a-file", "load", "an instance that is written and read is another one")


def as_graph(document):
    """Return a chain, an adjoint, a tree or a join as the task graph that it stands for; None where it has no name."""
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
