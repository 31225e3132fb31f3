"""Contents of one memory after the beginning of a sequential step, by names: producer, and readers until the drop."""

from remat.schedule.document import Drop, Run


def held_at(result, at):
    """Return {value: (maker, readers from then on)} of the only memory; `at` is a step, or None for the start."""
    graph, held = result.graph, {}
    steps = list(result.steps)
    for place in graph.inputs:
        held[graph.values[place.value]] = "there from the start"
    for step in steps[: 0 if at is None else at + 1]:
        if isinstance(step, Run):
            for value in graph.writes[graph.tasks.find(step.task)].tolist():
                if value not in graph.reads[graph.tasks.find(step.task)].tolist() or graph.values[value] not in held:
                    held[graph.values[value]] = step.task
        if step is not steps[at]:
            for value in step.values if isinstance(step, Drop) else step.drop:
                held.pop(value, None)
    return {value: (maker, _readers(result, steps, at, value)) for value, maker in held.items()}


def _readers(result, steps, at, value):
    graph, found = result.graph, []
    for index, step in enumerate(steps):
        if not isinstance(step, Run):
            gone = value in step.values and index > (-1 if at is None else at)
        else:
            task = graph.tasks.find(step.task)
            reads = {graph.values[one] for one in graph.reads[task].tolist()}
            writes = {graph.values[one] for one in graph.writes[task].tolist()}
            if at is None or index > at:
                if value in writes - reads:
                    return found
                if value in reads and step.task not in found:
                    found.append(step.task)
            gone = value in step.drop and index >= (-1 if at is None else at)
        if gone:
            return found
    return found
