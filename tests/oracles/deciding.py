"""The decisions of a schedule, recounted from its steps by name: runs per task, and offloaded values.

Nothing here knows of residencies, of decisions or of their words.
"""

from collections import Counter, defaultdict

from remat.schedule.document import Copy, Drop, Run


def runs_of_tasks(result):
    """Return how often each task runs."""
    return Counter(step.task for step in result.steps if isinstance(step, Run))


def runs_of_values(result):
    """Return how often each value is produced."""
    graph, found = result.graph, Counter()
    for task, count in runs_of_tasks(result).items():
        for value in graph.writes[graph.tasks.find(task)].tolist():
            found[graph.values[value]] += count
    return found


def waiting(result):
    """Return the values offloaded to each memory: resident there, used by no run there, but by a run elsewhere."""
    graph, machine = result.graph, result.machine
    home = {processor.name: machine.memories[processor.memory].name for processor in machine.processors}
    first = machine.memories[0].name
    lies, used = defaultdict(set), defaultdict(set)
    for place in graph.inputs:
        lies[place.memory or first].add(graph.values[place.value])
    for step in result.steps:
        match step:
            case Run():
                memory = home[step.on[0]] if step.on else home[machine.processors[0].name]
                task = graph.tasks.find(step.task)
                touched = [graph.values[v] for v in (*graph.reads[task].tolist(), *graph.writes[task].tolist())]
                used[memory].update(touched)
                lies[memory].update(touched)
            case Copy():
                lies[step.target].add(step.value)
            case Drop():
                pass
    anywhere = set().union(*used.values())
    return {memory: found for memory in lies if (found := (lies[memory] & anywhere) - used[memory])}


def timed(result):
    """Return the runs beyond the first of each value's tasks, and its copies, each with start and end, by value."""
    graph, report = result.graph, result.report
    made, again, moved = set(), defaultdict(list), defaultdict(list)
    for step, start, end in zip(result.steps, report.start.tolist(), report.end.tolist(), strict=True):
        match step:
            case Run():
                for value in graph.writes[graph.tasks.find(step.task)].tolist():
                    name = graph.values[value]
                    if name in made:
                        again[name].append((step.task, start, end))
                    made.add(name)
            case Copy():
                moved[step.value].append((step.source, step.target, start, end))
            case Drop():
                pass
    return again, moved


def periods(result):
    """Return when each value is in each memory, from the first bytes to the last, by value: (memory, start, end)."""
    graph, machine, report = result.graph, result.machine, result.report
    home = {processor.name: machine.memories[processor.memory].name for processor in machine.processors}
    first, default = machine.memories[0].name, home[machine.processors[0].name]
    since = {(graph.values[place.value], place.memory or first): 0 for place in graph.inputs}
    found, gone = defaultdict(list), Counter()
    for step, start, end in zip(result.steps, report.start.tolist(), report.end.tolist(), strict=True):
        match step:
            case Run():
                memory = home[step.on[0]] if step.on else default
                for value in graph.writes[graph.tasks.find(step.task)].tolist():
                    since.setdefault((graph.values[value], memory), start)
                for name in step.drop:
                    found[name].append((memory, since.pop((name, memory)), end))
            case Copy():
                since.setdefault((step.value, step.target), start)
                moved = step.bytes is not None
                left = gone[step.value, step.source] + (step.bytes or 0)
                if step.drop and (not moved or left == graph.size[graph.values.find(step.value)]):
                    found[step.value].append((step.source, since.pop((step.value, step.source)), end))
                    left = 0
                gone[step.value, step.source] = left if step.drop and moved else 0
            case Drop():
                for name in step.values:
                    found[name].append((step.memory, since.pop((name, step.memory)), end))
    for (name, memory), start in since.items():
        found[name].append((memory, start, report.makespan))
    return found


def residents(result, task):
    """Return the values in memory during each run of a task on one processor, replayed from the steps by name."""
    graph, there, found = result.graph, set(), []
    there.update(graph.values[place.value] for place in result.graph.inputs)
    for step in result.steps:
        match step:
            case Run():
                there.update(graph.values[value] for value in graph.writes[graph.tasks.find(step.task)].tolist())
                if step.task == task:
                    found.append(set(there))
                there.difference_update(step.drop)
            case Drop():
                there.difference_update(step.values)
    return found
