"""Drawn instances of kind `dag` with device constraints, and plans for them."""

MEMORIES = ("m0", "m1", "m2")
TYPES = ("fast", "slow", "")


def with_devices(chance, document):
    """Return a drawn `dag` document with a drawn machine, times by type, tied tasks and placeable inputs."""
    memories = list(MEMORIES[: chance.randint(1, 3)])
    processors = [
        {"name": f"p{k}", "memory": memories[k % len(memories)]} | ({"type": kind} if kind else {})
        for k, kind in enumerate(chance.choices(TYPES, k=chance.randint(len(memories), 4)))
    ]
    if len(processors) > 1 and chance.random() < 0.3:
        processors[-1]["speed"] = 0.5
    machine = {
        "memories": [{"name": name} | chance.choice([{}, {"static": chance.randint(1, 9)}]) for name in memories],
        "processors": processors,
        "links": [
            {"source": one, "target": other, "latency": chance.randint(0, 2)}
            for one in memories
            for other in memories
            if one != other or chance.random() < 0.5  # the link to equal ranks that are not modelled
        ],
    }
    tasks = [_task(chance, task, processors) for task in document["tasks"]]
    values = list(document.get("values", []))
    for number in range(chance.randint(0, 2)):
        _collective(chance, f"all{number}", memories, tasks, values)
    names = [entry if isinstance(entry, str) else entry["value"] for entry in document["inputs"]]
    inputs = [_input(chance, name) for name in dict.fromkeys(names)]
    placed = [entry["value"] for entry in inputs if isinstance(entry, dict)]
    outputs = [{"value": name, "memory": "any"} for name in placed if chance.random() < 0.3]
    outputs += [value for value in document.get("outputs", []) if {"value": value, "memory": "any"} not in outputs]
    return document | {
        "schema": "remat.instance/3",
        "machine": machine,
        "tasks": tasks,
        "values": values,
        "inputs": inputs,
        "outputs": outputs,
    }


def _task(chance, task, processors):
    task = {key: value for key, value in task.items() if key != "parallel"}
    if chance.random() < 0.4:
        tied = chance.sample(processors, chance.randint(1, len(processors)))
        task["on"] = [one["name"] for one in tied]
    else:
        tied = processors
    kinds = [one["type"] for one in tied if "type" in one]
    if kinds and chance.random() < 0.5:
        able = {chance.choice(kinds), *chance.sample(["fast", "slow", "absent"], chance.randint(0, 2))}
        task["time"] = {kind: chance.randint(0, 9) for kind in sorted(able)}
    return task


def _collective(chance, name, memories, tasks, values):
    """Add a collective over some of the memories, which makes values in some of them, and perhaps a reader of these."""
    count = chance.randint(1, len(memories))
    known = [value["id"] for value in values] + [task["id"] for task in tasks if "size" in task]
    made = [f"{name}.{k}" for k in range(chance.randint(0, 2))]
    values += [{"id": value, "size": chance.randint(0, 5)} for value in made]
    fixed = chance.sample(memories, count)
    parts = []
    for k in range(count):
        part = {"reads": chance.sample(known, min(len(known), chance.randint(0, 2)))}
        part["writes"] = [value for value in made if not k or chance.random() < 0.5]
        if chance.random() < 0.3:
            part["memory"] = fixed[k]
        parts.append(part)
    tasks.append({"id": name, "time": chance.randint(0, 9), "parts": parts, "busy": chance.random() < 0.4})
    if chance.random() < 0.5:
        tasks[-1]["workspace"] = chance.randint(0, 4)
    if made and chance.random() < 0.5:
        tasks.append({"id": f"after.{name}", "time": chance.randint(0, 4), "reads": made, "size": 1})


def reads_of(task):
    """Return what a task reads, a collective in any of its memories."""
    return [*task.get("reads", []), *(value for part in task.get("parts", []) for value in part["reads"])]


def _dropped(document, steps, value, memory):
    """Drop a value with the step that touches it last there, if that is a collective of one part, or in a new step."""
    tasks = {task["id"]: task for task in document["tasks"]}
    where = {one["name"]: one["memory"] for one in document["machine"]["processors"]}
    for step in reversed(steps):
        task = tasks.get(step.get("run"), {})
        if step.get("copy") == value and memory in (step["from"], step["to"]):
            break
        if ("run" in step and where[step["on"][0]] == memory) or len(step.get("on", [])) > 1:
            parts = task.get("parts", [task])
            made = [task["id"]] if "size" in task else []
            if value in [v for part in parts for v in (*part.get("reads", []), *part.get("writes", []))] + made:
                if "parts" in task and len(parts) == 1:
                    step.setdefault("drop", []).append(value)
                    return []
                break
    return [{"drop": [value], "memory": memory}]


def _members(chance, document, task):
    """Return a processor for each part of a collective, each in a different memory."""
    one_each = {}
    for processor in able(document, task):
        one_each.setdefault(processor["memory"], []).append(processor)
    fixed = {part["memory"] for part in task["parts"] if "memory" in part}
    free = [memory for memory in one_each if memory not in fixed]
    chance.shuffle(free)
    where = [part["memory"] if "memory" in part else free.pop() for part in task["parts"]]
    return [chance.choice(one_each[memory]) for memory in where]


def _input(chance, name):
    if chance.random() < 0.5:
        return name
    return {"value": name, "memory": "any"} | chance.choice([{}, {"copies": chance.randint(1, 3)}])


def able(document, task):
    """Return the processors that may run a task."""
    return [
        one
        for one in document["machine"]["processors"]
        if one["name"] in task.get("on", [one["name"]])
        and (not isinstance(task["time"], dict) or one.get("type", "") in task["time"])
    ]


def draw_plan(chance, document):
    """Return a plan without start times in which every task that can run does so once, where it may."""
    memories = [one["name"] for one in document["machine"]["memories"]]
    there, initial, steps = {}, {}, []
    for entry in document["inputs"]:
        if isinstance(entry, str):
            there[entry] = {memories[0]}
        else:
            most = min(entry.get("copies", 1), len(memories))
            initial[entry["value"]] = chance.sample(memories, chance.randint(1, most))
            there[entry["value"]] = set(initial[entry["value"]])
    fixed = {(value, where) for value, places in there.items() for where in places}

    def bring(value, memory):
        if memory not in there[value]:
            steps.append({"copy": value, "from": chance.choice(sorted(there[value])), "to": memory})
            there[value].add(memory)

    waiting = list(document["tasks"])
    while waiting:
        task = chance.choice([task for task in waiting if all(value in there for value in reads_of(task))])
        waiting.remove(task)
        if "parts" in task:
            members = _members(chance, document, task)
            for part, one in zip(task["parts"], members, strict=True):
                for value in part["reads"]:
                    bring(value, one["memory"])
            steps.append({"run": task["id"], "on": [one["name"] for one in members]})
            for part, one in zip(task["parts"], members, strict=True):
                for value in part["writes"]:
                    there.setdefault(value, set()).add(one["memory"])
            continue
        where = chance.choice(able(document, task))
        for value in task.get("reads", []):
            bring(value, where["memory"])
        steps.append({"run": task["id"], "on": [where["name"]]})
        for value in [task["id"]] if "size" in task else task["writes"]:
            there.setdefault(value, set()).add(where["memory"])
    for entry in document["outputs"]:
        if isinstance(entry, str):
            bring(entry, memories[0])
            fixed.add((entry, memories[0]))
    for value, places in there.items():
        for memory in sorted(places):
            if (value, memory) not in fixed and chance.random() < 0.5:
                steps += _dropped(document, steps, value, memory)
    return {"schema": "remat.schedule/2", "initial": initial, "steps": steps}
