"""The step end of a pipeline: copies of layers add up their gradients and update their parameters.

Readings of the format where it is brief
----------------------------------------
- A layer's copies are the devices that hold any of its parameters, gradients or optimizer state; without any of these
  it has no step end.
- Copies exchange only if at least two exist and gradients have a size. The exchange waits for the last backward (or
  weight half) of each micro-batch. An update waits for that exchange, or without one for the last backwards of its own
  device.
- A round of the ring lasts as long as its slowest link: latency + delay + bytes / (copies x bandwidth).
- Updates follow the order of their device: first the stage whose last backward is listed first, and within a stage the
  last layer first. Layers without a backward come last, from the first layer on.
- An exchange occupies all its links at once, as soon as all earlier requests on them are done. Of the operations that
  can start at one instant, exchanges come last, the lowest layer first.
"""

from dataclasses import replace

from .lowering import Task, around, of_layer, ratio


def of_ranks(document, graph, machine, orders, initial):
    """Return the graph of one of several ranks, with exchanges, gathers and updates, and the updates in order.

    Orders change: if ranks reduce each micro-batch or gather for each use, devices run task by task.
    """
    given = document["sharding"]
    ranks, zero, keep = given["data"], given.get("zero", 0), given.get("keep", False)
    tasks, values, updates = dict(graph.tasks), dict(graph.values), {}
    layers = [layer for layer in document["layers"] for _ in range(layer.get("repeat", 1))]
    each = zero > 1 and not keep
    if each:
        for device, operations in orders.items():
            orders[device] = [piece for operation in operations for piece in _pieces(operation)]
    emptied = {}
    for number, layer in enumerate(layers, 1):
        sizes = of_layer(layer)
        own = [f"{letter}{number}" for letter in "wgo" if sizes[letter] > 0]
        if not own:
            continue
        home = initial[own[0]][0]
        batches = range(document["micro_batches"])
        halves = [f"W{number}.{m}" if f"W{number}.{m}" in tasks else f"B{number}.{m}" for m in batches]
        bucket = layer["bucket_size"] if layer.get("bucket_size") is not None else sizes["g"]
        if each and sizes["g"] > 0:
            ready = []
            for m, half in enumerate(halves):
                task = tasks[half]
                reads = tuple(value for value in task.reads if value != f"g{number}")
                tasks[half] = replace(task, reads=reads, writes=(*task.writes, f"b{number}.{m}"))
                values |= {f"b{number}.{m}": bucket, f"r{number}.{m}": 0}
                ready.append(f"r{number}.{m}")
                emptied[half] = ready[-1]
                pair = [f"b{number}.{m}", f"g{number}"], [ready[-1]]
                tasks[f"A{number}.{m}"] = around(machine, ranks, bucket, *pair, place=home)
        else:
            ready = [f"d{number}.{m}" for m in batches]
            values |= dict.fromkeys(ready, 0)
            for half, mark in zip(halves, ready, strict=True):
                tasks[half] = replace(tasks[half], writes=(*tasks[half].writes, mark))
            if sizes["g"] > 0 and ranks > 1:  # one rank has nobody to exchange with
                values[f"r{number}"] = 0
                pair = [f"g{number}", *ready], [f"r{number}"]
                tasks[f"A{number}"] = around(machine, ranks, sizes["g"], *pair, twice=zero == 0, place=home)
                ready = [f"r{number}"]
        if layer.get("update_time", 0) or (zero in (1, 2) and sizes["w"] > 0):  # of no time: then parameters are new
            time = layer.get("update_time", 0)
            time = time if zero == 0 else ratio(time, ranks)
            values[f"u{number}"] = 0
            tasks[f"U{number}"] = Task(time, (*own, *ready), (f"u{number}",), once=True, recomputable=False)
            updates[number, next(name for name, at in machine.processors.items() if at == home)] = f"U{number}"
            ready = [f"u{number}"]
        if zero in (1, 2) and sizes["w"] > 0:
            values[f"n{number}"] = 0
            pair = [f"w{number}", *ready], [f"n{number}"]
            tasks[f"N{number}"] = around(machine, ranks, sizes["w"], *pair, place=home)
        if zero == 3 and sizes["w"] > 0:
            _gather(tasks, values, (number, sizes["w"], keep), (machine, ranks, home), batches)
    for operations in orders.values():
        _hold_back(tasks, values, operations, emptied)
    # Collectives run once, and no update or gather for a use is recomputed.
    tasks = {name: replace(task, recomputable=False) if task.parts else task for name, task in tasks.items()}
    return replace(graph, tasks=tasks, values=values), _in_turn(orders, updates)


def _gather(tasks, values, layer, where, batches):
    number, size, keep = layer
    machine, ranks, home = where
    if keep:
        values[f"f{number}"] = size
        tasks[f"P{number}"] = around(machine, ranks, size, [f"w{number}"], [f"f{number}"], place=home)
    for task, gather, letter in (("Fe", "P", "f"), ("B", "Q", "h")):
        for m in batches:
            value = f"f{number}" if keep else f"{letter}{number}.{m}"
            if not keep:
                values[value] = size
                made = around(machine, ranks, size, [f"w{number}"], [value], place=home)
                tasks[f"{gather}{number}.{m}"] = made
            old = tasks[f"{task}{number}.{m}"]
            reads = tuple(value if read == f"w{number}" else read for read in old.reads)
            tasks[f"{task}{number}.{m}"] = replace(old, reads=reads)


def _hold_back(tasks, values, operations, emptied):
    """A gather comes no earlier than the task before its user; of a device's buckets two at most are full."""
    filled = []
    for operation in operations:
        for name in operation.tasks:
            if name in emptied:
                if len(filled) >= 2:
                    tasks[name] = replace(tasks[name], reads=(*tasks[name].reads, emptied[filled[-2]]))
                filled.append(name)
    for index, operation in enumerate(operations):
        for name in operation.tasks:
            gather = {"Fe": "P", "B": "Q"}.get(name.rstrip("0123456789."))
            gather = gather and gather + name.lstrip("FeB")
            if gather not in tasks or index < 2:
                continue
            before, mark = operations[index - 2].tasks[-1], f"before {gather}"
            values[mark] = 0
            tasks[before] = replace(tasks[before], writes=(*tasks[before].writes, mark))
            task = tasks[gather]
            ((reads, made, place),) = task.parts
            tasks[gather] = replace(task, reads=(*task.reads, mark), parts=(((*reads, mark), made, place),))


def _pieces(operation):
    """Cut an operation into its tasks; two at once stay together."""
    found, device = [], operation.device
    for index, name in enumerate(operation.tasks):
        if index in operation.beside:
            found[-1] = replace(found[-1], tasks=[*found[-1].tasks, name], beside=frozenset([1]))
        else:
            found.append(replace(operation, device=device, tasks=[name], beside=frozenset(), again=frozenset()))
    return found


def ended(document, graph, machine, orders, initial):
    """Return the graph with exchanges and updates, and (device, update) in execution order.

    Parameters
    ----------
    document : dict
    graph : Graph
    machine : Machine
    orders : dict of device to list of operations
    initial : dict of value to list of memories
    """
    layers = [layer for layer in document["layers"] for _ in range(layer.get("repeat", 1))]
    ring = document.get("exchange", "none") == "ring" and document.get("copies", 1) > 1
    tasks, values, updates = dict(graph.tasks), dict(graph.values), {}
    ran = {name: device for device, operations in orders.items() for op in operations for name in op.tasks}
    for number, layer in enumerate(layers, 1):
        own = [f"{letter}{number}" for letter in "wgo" if f"{letter}{number}" in graph.values]
        memories = {memory for value in own for memory in initial[value]}
        homes = [device for device, memory in machine.processors.items() if memory in memories]
        time = layer.get("update_time", 0)
        exchanged = ring and len(homes) > 1 and f"g{number}" in own
        if not homes or not (time or exchanged):
            continue
        marks = {home: [] for home in homes}
        for batch in range(sum(name.startswith(f"B{number}.") for name in graph.tasks)):
            half = f"W{number}.{batch}" if f"W{number}.{batch}" in tasks else f"B{number}.{batch}"
            values[f"d{number}.{batch}"] = 0
            tasks[half] = replace(tasks[half], writes=(*tasks[half].writes, f"d{number}.{batch}"))
            marks[ran[half]].append(f"d{number}.{batch}")
        if exchanged:
            values[f"r{number}"] = 0
            parts = tuple(((f"g{number}", *marks[home]), (f"r{number}",), home) for home in homes)
            every = (f"g{number}", *(mark for home in homes for mark in marks[home]))
            took = _around(machine, homes, graph.values[f"g{number}"])
            tasks[f"A{number}"] = Task(took, every, (f"r{number}",), once=True, recomputable=False, parts=parts)
        for index, home in enumerate(homes if time else []):
            reads = (*own, *([f"r{number}"] if exchanged else marks[home]))
            updates[number, home] = f"U{number}.{index}"
            tasks[f"U{number}.{index}"] = Task(time, reads, (), once=True, recomputable=False, on=(home,))
    return replace(graph, tasks=tasks, values=values), _in_turn(orders, updates)


def channels(machine, task):
    """Return the channels that an exchange holds."""
    homes = [place for _, _, place in task.parts]
    links = [machine.link(*pair) for pair in zip(homes, homes[1:] + homes[:1], strict=True)]
    if links == [None]:  # ranks of one device, without a link between them
        return []
    return list(dict.fromkeys(name for link in links for name in (link.channel, *link.also)))


def _around(machine, homes, size):
    """Return the time of 2 (r - 1) rounds."""
    count, rounds = len(homes), []
    for pair in zip(homes, homes[1:] + homes[:1], strict=True):
        link = machine.link(*pair)
        took = link.latency + link.delay
        if link.bandwidth is not None:
            whole = isinstance(link.bandwidth, int) and size % (count * link.bandwidth) == 0
            took += size // (count * link.bandwidth) if whole else size / (count * link.bandwidth)
        rounds.append(took)
    return 2 * (count - 1) * max(rounds)


def _in_turn(orders, updates):
    found = []
    for device, operations in orders.items():
        last, of_stage = {}, {}
        for index, operation in enumerate(operations):
            for stage, layers, backward in operation.passes if len(operation.again) < len(operation.tasks) else ():
                of_stage[stage] = layers
                last[stage] = index if backward else last.get(stage, -1)
        for stage in sorted((one for one in of_stage if last[one] >= 0), key=lambda one: last[one]):
            found += [(device, (layer, device)) for layer in reversed(of_stage[stage])]
        found += [(device, key) for key in sorted(updates) if key[1] == device]
    return [(device, updates[key]) for device, key in dict.fromkeys(found) if key in updates]
