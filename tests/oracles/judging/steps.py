"""Judge a list of timed steps."""

from dataclasses import replace

from tests.oracles.actions import is_time, read_step

from .figures import count
from .report import Report
from .simulation import Simulation, check_resources, check_without_tolerance, instants_of


def judge(graph, machine, steps, initial, span=None):
    """Judge a list of timed steps.

    Parameters
    ----------
    graph : Graph
    machine : Machine
    steps : list of dict
        Every one with its `start`.
    initial : dict
        The memories of every placeable input at the start.
    span : number, optional
        Times within 1e-9 of it are one instant, of floats; default: of the makespan.

    Returns
    -------
    Report
    """
    report = Report()
    inputs, rules = placed(graph, machine, initial)
    report.violations += [(None, rule) for rule in rules]
    graph = replace(
        graph,
        inputs=[*graph.inputs, *inputs],
        pinned=graph.pinned | graph.placeable - set(graph.follows),
        outputs=[*graph.outputs, *((graph.follows[value], name) for value, name in inputs if value in graph.follows)],
    )
    actions = []
    for index, step in enumerate(steps):
        action, rules = read_step(graph, machine, index, step)
        if action is not None and not is_time(step.get("start")):
            action, rules = None, [*rules, "bad-step"]
        report.violations += [(index, rule) for rule in rules]
        if action is not None:
            action.start = step["start"]
            actions.append(action)

    actions = _join_pairs(graph, machine, steps, actions, report)
    whole = _simulated(graph, machine, actions, report, instants_of(actions, span))
    if _presence_is_broken(whole):
        # Next to a very long step, whole steps are one instant. Their times as given may be in order all the same.
        makespan = whole.makespan
        lengths = [action.end - action.start for action in actions]
        least = min((length for length in lengths if length > 2**-42 * makespan), default=makespan)
        span = min(makespan if span is None else span, least / 2 / 1e-9)
        apart = _simulated(graph, machine, actions, report, instants_of(actions, span))
        if not _presence_is_broken(apart):
            return apart
    return whole


def _presence_is_broken(report):
    """Whether a rule is broken other than those on the use of resources and bytes."""
    return bool(report.rules - {"capacity", "resource-busy", "time-hidden"})


def _simulated(graph, machine, actions, given, instant):
    """Return the report of the actions, if these times are one instant each; `given` has what is wrong before."""
    report = Report(list(given.violations), makespan=max((action.end for action in actions), default=0))
    report.has_instants = any(
        action.task is not None and instant[action.start] == instant[action.end] for action in actions
    )
    check_resources(actions, instant, report)
    simulation = Simulation(graph, machine, actions, instant, report)
    simulation.run()
    if not report.violations:
        check_without_tolerance(simulation)
    count(graph, machine, actions, report)
    return report


def _join_pairs(graph, machine, steps, actions, report):
    """Give two runs at once the time that they take together; one alone occupies the processor for both."""
    there = {action.index: action for action in actions}
    for index, step in enumerate(steps):
        if index not in there or "run" not in step or not step.get("paired"):
            continue
        second, first = there[index], there.get(index - 1)
        good = first is not None and first.task is not None and not steps[index - 1].get("paired")
        if good:
            tasks = [graph.tasks[one.task] for one in (first, second)]
            good = {task.side for task in tasks} == {"forward", "backward"} and first.start == second.start
            good = good and first.resources == second.resources and len(first.resources) == 1
        if not good:
            report.violations.append((index, "bad-step"))
            del there[index]
            continue
        (device,) = first.resources
        kind = machine.types[device]
        first.duration = first.duration + second.duration - min(task.spared.get(kind, 0) for task in tasks)
        second.duration, second.resources = first.duration, ()
    return [action for action in actions if action.index in there]


def placed(graph, machine, initial):
    """Return the placeable inputs with their memories at the start, and the rules that these break."""
    rules = ["initial-placement" for value in initial if value not in graph.placeable]
    inputs = []
    for value in sorted(graph.placeable):
        memories = list(dict.fromkeys(initial.get(value) or []))
        rules += ["unknown-memory" for name in memories if name not in machine.memories]
        if not 1 <= len(memories) <= graph.most.get(value, graph.copies):
            rules.append("initial-placement")
        inputs += [(value, name) for name in memories if name in machine.memories]
    return inputs, sorted(set(rules))
