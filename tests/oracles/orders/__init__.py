"""Play the orders of a pipeline: from `stages` and `orders` of a schedule document to a list of timed steps.

A clock advances from event to event. At every instant, first all finishing steps end. Then every free link takes the
first transfer in its queue. Last, every device starts its next operation if all inputs are present.

If transfers block devices, each device has a program instead. Between two operations it sends the results of the first,
then receives the inputs that the second is the first on its device to read. Sends and receives are listed one by one,
or (``grouped``) all at once; ``blocking`` transfers have sends only. A device that reaches a transfer continues when
the transfer is done. A transfer can start when its devices have reached it. At every instant, the transfer that has
been ready longest starts, if its devices are idle (ties: by sender, receiver and value), until none can start; then
operations start.

Rules
-----
initial-placement
    A layer is in no stage, or in stages of too many devices; a placeable input is in too many memories at the start,
    or in none.
bad-step
    An operation that cannot be read, or whose stage or micro-batch there is not, or which is not of this device; which
    runs a task that another one runs; a W or BW of layers without halves; a layer that the device's type cannot run,
    or whose parameters do not lie on the device. What runs again in a pair, where ranks gather or reduce for each
    micro-batch, or ahead where transfers hold devices up; an R that is not between its forward and its backward.
required-missing
    An operation is missing: a forward, a backward or a weight half that none of them runs.
deadlock
    Operations wait for ever.

Readings of the format where it is brief
----------------------------------------
- BW runs the B of all its layers, the last one first, and then their W; layers without halves have their B only.
- A W of a stage in which some layers have halves runs those of these layers.
- The layers of a stage that is a list run in ascending order.
- A stage puts the parameters of its layers on its device even if no operation names it; two stages with the same layers
  on one device are one copy.
- The results of an operation go to every device on which any operation reads them. All results are ready when it ends.
  They are sent by letter (x, s, y, v, e), then by layer, for gradients of one output by reader, and for one value by
  device.
- Recomputation ahead runs segment by segment, the first layers first.
- A backward with recomputed layers waits for their forwards, if these run on its device.
- A recomputed value is freed after its last use before the recomputation, and again after its last use.
- `initial` is taken as it is given.
- Unread values are dropped by their producer.
- Drops are those of the last use to end; of uses that end at one time, of the one listed last.
"""

from tests.oracles import closing

from .choices import degrees_of, divided, in_groups
from .drops import with_drops
from .operations import Plan, layer_of, operation
from .overlapping import play
from .programs import Programs

__all__ = ["degrees_of", "divided", "in_groups", "steps_of"]


def steps_of(document, graph, machine, schedule, transfers="overlap"):
    """Turn the orders of a schedule document into steps.

    Parameters
    ----------
    document : dict
        The instance.
    graph : Graph
        The task graph of the pipeline.
    machine : Machine
    schedule : dict
        A `remat.schedule/2` document with `stages` and `orders`.
    transfers : str
        What the cluster says that they hold up.

    Returns
    -------
    steps : list of dict or None
        Steps with their starts, sorted by them; None where a rule is broken.
    initial : dict
        The memories of every placeable input at the start.
    rules : list of str
        The rules that are broken, before there are any steps.
    graph : Graph
        With what ends the step.
    """
    plan = Plan(graph, machine, schedule)
    homes = list(zip(plan.stages, plan.devices, strict=True))
    initial = schedule.get("initial")
    if initial is None:
        initial = {
            value: sorted({machine.processors[device] for layers, device in homes if layer_of(value) in layers})
            for value in graph.placeable
        }
    rules = _misplaced(graph, homes, initial)
    orders, broken = _operations(document, plan, schedule["orders"], initial, transfers)
    rules += broken
    if rules:
        return None, initial, rules, graph
    end = closing.of_ranks if document.get("sharding") else closing.ended
    graph, last = end(document, graph, machine, orders, initial)
    for device, operations in orders.items():  # what tasks read and make may have changed
        orders[device] = [operation(graph, device, one.tasks, one.beside, one.again, one.passes) for one in operations]
    for device, task in last:
        orders[device].append(operation(graph, device, [task]))
    if transfers == "overlap":
        steps = play(graph, machine, orders, initial)
    else:
        steps = Programs(graph, machine, orders, initial, transfers).play()
    if steps is None:
        return None, initial, ["deadlock"], graph
    return with_drops(graph, machine, steps), initial, [], graph


def _misplaced(graph, homes, initial):
    """Return the rules that stages and initial placements break."""
    rules = []
    every = {int(name[2:].split(".")[0]) for name in graph.tasks if name.startswith("Fe")}
    if every - {layer for layers, _ in homes for layer in layers}:
        rules.append("initial-placement")
    if any(len({device for own, device in homes if layer in own}) > graph.copies for layer in every):
        rules.append("initial-placement")
    if any(not 1 <= len(set(initial.get(value, ()))) <= graph.copies for value in graph.placeable):
        rules.append("initial-placement")
    return rules


def _operations(document, plan, texts, initial, transfers):
    """Return the operations of each device, and the rules that they break."""
    graph, machine = plan.graph, plan.machine
    sharding = document.get("sharding") or {}
    each = sharding.get("zero", 0) > 1 and not sharding.get("keep", False)
    orders, ran, rules = {}, set(), []
    for device in machine.processors:
        orders[device] = []
        for text in texts.get(device, []):
            found = plan.read(text, device)
            once = [name for index, name in enumerate(found.tasks) if index not in found.again] if found else []
            if found is None or ran & set(once) or len(set(once)) < len(once):
                rules.append("bad-step")
                continue
            if found.again and (each or (text[0] == "R" and transfers != "overlap")):
                rules.append("bad-step")
            needed = {value for name in found.tasks for value in graph.tasks[name].reads if value in graph.placeable}
            if any(machine.processors[device] not in initial.get(value, ()) for value in needed):
                rules.append("bad-step")
            ran |= set(once)
            orders[device].append(found)
        if plan.misplaced(texts.get(device, [])):
            rules.append("bad-step")
    if set(texts) - set(machine.processors):
        rules.append("bad-step")
    if set(graph.tasks) - ran:
        rules.append("required-missing")
    return orders, rules
