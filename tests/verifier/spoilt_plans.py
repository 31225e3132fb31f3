"""Corruptions that break a valid pipeline plan in one place, each with the expected rule.

Every function takes a random generator and a `Plan`. It returns the corrupted (instance document, schedule document)
and the rules of which one must be reported, or None if the plan has no suitable place. Functions marked `as_orders`
change stages and orders; those marked `as_steps` change the resulting steps.
"""

import copy
from dataclasses import dataclass
from functools import cached_property

from tests.oracles import lowering
from tests.oracles.actions import read_step
from tests.verifier.plans import played

AS_ORDERS, AS_STEPS = {}, {}


@dataclass
class Plan:
    """A pipeline, legal orders for it, and the steps that follow from these."""

    document: dict
    orders: dict

    @cached_property
    def machine(self):
        return lowering.machine(self.document)

    @cached_property
    def graph(self):
        return lowering.lower(self.document, self.machine)

    @cached_property
    def schedule(self):
        return played(self.document, self.orders)

    @cached_property
    def actions(self):
        """Spell every step out."""
        found = []
        for index, step in enumerate(self.schedule["steps"]):
            action, _ = read_step(self.graph, self.machine, index, step)
            action.start = step["start"]
            found.append(action)
        return found

    @property
    def makespan(self):
        return max(action.end for action in self.actions)

    def lasts(self, time):
        """Whether a time is clearly longer than an instant."""
        return time > 1e-6 * self.makespan

    def entries(self):
        """Return (device, position, operation) of all orders."""
        return [
            (device, place, text) for device, texts in self.orders["orders"].items() for place, text in enumerate(texts)
        ]

    def runs(self):
        return [index for index, step in enumerate(self.schedule["steps"]) if "run" in step]

    def copies(self):
        return [index for index, step in enumerate(self.schedule["steps"]) if "copy" in step]

    def halved(self, stage):
        """Whether some layer of a stage is in halves."""
        layers = self.orders["stages"][stage]["layers"]
        layers = range(layers["from"], layers["to"] + 1) if isinstance(layers, dict) else layers
        return any(f"W{layer}.0" in self.graph.tasks for layer in layers)


def as_orders(function):
    AS_ORDERS[function.__name__.replace("_", " ")] = function
    return function


def as_steps(function):
    AS_STEPS[function.__name__.replace("_", " ")] = function
    return function


def _one(chance, options):
    options = list(options)
    return chance.choice(options) if options else None


def _read(text):
    name, batch = text.split("&")[0].split(".")
    phase = name.rstrip("0123456789")
    return phase, int(name[len(phase) :]), int(batch)


def _reordered(plan, device, texts):
    spoilt = copy.deepcopy(plan.orders)
    spoilt["orders"][device] = texts
    return plan.document, spoilt


def _without(texts, place):
    return texts[:place] + texts[place + 1 :]


def _changed(plan, index, **change):
    spoilt = copy.deepcopy(plan.schedule)
    spoilt["steps"][index] |= change
    return plan.document, spoilt


def _added(plan, step):
    spoilt = copy.deepcopy(plan.schedule)
    spoilt["steps"].append(step)
    return plan.document, spoilt


def _left_out(plan, index):
    spoilt = copy.deepcopy(plan.schedule)
    del spoilt["steps"][index]
    return plan.document, spoilt


# --- orders -----------------------------------------------------------------------------------------------------------


def _before(chance, plan, earlier, later):
    """Move an operation of one device before another one, of the same layers' micro-batch, that it must follow."""
    options = []
    for device, place, text in plan.entries():
        phase, stage, batch = _read(text)
        for other, name in enumerate(plan.orders["orders"][device][:place]):
            kind, of, micro = _read(name)
            if (of, micro) == (stage, batch) and phase in later and kind in earlier:
                options.append((device, other, place))
    chosen = _one(chance, options)
    if chosen is None:
        return None
    device, other, place = chosen
    texts = plan.orders["orders"][device]
    moved = [*texts[:other], texts[place], *_without(texts[other:], place - other)]
    return _reordered(plan, device, moved), {"deadlock"}


@as_orders
def b_before_its_f(chance, plan):
    return _before(chance, plan, ("F",), ("B", "BW"))


@as_orders
def w_before_its_b(chance, plan):
    return _before(chance, plan, ("B",), ("W",))


@as_orders
def a_cycle_of_two_devices(chance, plan):
    """A device sends a gradient only after a forward that another one feeds only once it has that gradient."""
    stages, where = plan.orders["stages"], {text: device for device, _, text in plan.entries()}
    options = []
    for text, upper in where.items():
        phase, first, batch = _read(text)
        for last, stage in enumerate(stages) if phase in ("B", "BW") else ():
            if stage["device"] == upper or _layers(stages[first])[1] + 1 != _layers(stage)[0]:
                continue
            for other in range(plan.document["micro_batches"]):
                sent = [f"{name}{last}.{batch}" for name in ("B", "BW") if f"{name}{last}.{batch}" in where]
                fed = f"F{first}.{other}", f"F{last}.{other}"
                if sent and other != batch and fed[0] in where and fed[1] in where:
                    options.append((upper, stage["device"], (text, fed[0]), (fed[1], sent[0])))
    chosen = _one(chance, options)
    if chosen is None:
        return None
    upper, lower, *pairs = chosen
    spoilt = copy.deepcopy(plan.orders)
    for device, (before, after) in zip((upper, lower), pairs, strict=True):
        texts = [text for text in spoilt["orders"][device] if text != before]
        texts.insert(texts.index(after), before)
        spoilt["orders"][device] = texts
    return (plan.document, spoilt), {"deadlock"}


def _layers(stage):
    layers = stage["layers"]
    return (layers["from"], layers["to"]) if isinstance(layers, dict) else (layers[0], layers[-1])


@as_orders
def an_operation_is_missing(chance, plan):
    device, place, _ = _one(chance, plan.entries())
    return _reordered(plan, device, _without(plan.orders["orders"][device], place)), {"required-missing"}


@as_orders
def an_operation_twice(chance, plan):
    device, _, text = _one(chance, plan.entries())
    return _reordered(plan, device, [*plan.orders["orders"][device], text]), {"bad-step"}


@as_orders
def a_backward_in_halves_and_whole(chance, plan):
    chosen = _one(chance, [entry for entry in plan.entries() if _read(entry[2])[0] in ("B", "W")])
    if chosen is None or not plan.halved(_read(chosen[2])[1]):
        return None
    device, _, text = chosen
    _, stage, batch = _read(text)
    return _reordered(plan, device, [*plan.orders["orders"][device], f"BW{stage}.{batch}"]), {"bad-step"}


@as_orders
def a_half_that_layers_do_not_have(chance, plan):
    chosen = _one(chance, [entry for entry in plan.entries() if not plan.halved(_read(entry[2])[1])])
    if chosen is None:
        return None
    device, _, text = chosen
    _, stage, batch = _read(text)
    return _reordered(plan, device, [*plan.orders["orders"][device], f"W{stage}.{batch}"]), {"bad-step"}


@as_orders
def a_whole_that_layers_do_not_have(chance, plan):
    chosen = _one(chance, [e for e in plan.entries() if _read(e[2])[0] == "B" and not plan.halved(_read(e[2])[1])])
    if chosen is None:
        return None
    device, place, text = chosen
    texts = list(plan.orders["orders"][device])
    texts[place] = text.replace("B", "BW")
    return _reordered(plan, device, texts), {"bad-step"}


@as_orders
def a_layer_in_no_stage(chance, plan):
    """Without its operations; so these are missing, too."""
    spoilt = copy.deepcopy(plan.orders)
    stage = chance.randrange(len(spoilt["stages"]))
    layers = _layers(spoilt["stages"][stage])
    same = [index for index, other in enumerate(spoilt["stages"]) if _layers(other) == layers]
    if len(same) == len(spoilt["stages"]):
        return None
    keep = [index for index in range(len(spoilt["stages"])) if index not in same]
    spoilt["stages"] = [spoilt["stages"][index] for index in keep]
    spoilt["orders"] = {
        device: [
            f"{phase}{keep.index(of)}.{batch}" for phase, of, batch in (_read(text) for text in texts) if of in keep
        ]
        for device, texts in spoilt["orders"].items()
    }
    return (plan.document, spoilt), {"initial-placement"}


@as_orders
def a_layer_on_more_devices_than_copies(chance, plan):
    spoilt = copy.deepcopy(plan.orders)
    stage = chance.choice(spoilt["stages"])
    for device in plan.machine.processors:
        spoilt["stages"].append({"layers": stage["layers"], "device": device})
    if len(plan.machine.processors) <= plan.graph.copies:
        return None
    return (plan.document, spoilt), {"initial-placement"}


@as_orders
def a_layer_on_a_device_that_cannot_run_it(chance, plan):
    """Take from one of the layers its time on the type of device that runs it."""
    index = chance.randrange(len(plan.document["layers"]))
    here = [number for number, layer in enumerate(plan.document["layers"]) for _ in range(layer.get("repeat", 1))]
    (kind, *_) = {
        plan.machine.types[stage["device"]]
        for stage in (plan.orders["stages"][_read(text)[1]] for _, _, text in plan.entries())
        if any(here[layer - 1] == index for layer in range(_layers(stage)[0], _layers(stage)[1] + 1))
    }
    others = sorted({*plan.machine.types.values()} - {kind})
    if not others:
        return None
    document = copy.deepcopy(plan.document)
    document["layers"][index]["forward_time"] = dict.fromkeys(others, 1)
    document["layers"][index].pop("paired_time", None)
    for key in ("backward_time", "weight_time"):
        time = document["layers"][index].get(key)
        if isinstance(time, dict) and not {*time} & {*others}:
            return None
    return (document, plan.orders), {"bad-step"}


@as_orders
def parameters_placed_elsewhere(chance, plan):
    """Return orders with an `initial` that places parameters away from the device of their layer."""
    initial = copy.deepcopy(plan.schedule["initial"])
    value = _one(chance, [name for name in sorted(initial) if name[0] == "w"])
    if value is None:
        return None
    elsewhere = sorted(set(plan.machine.memories) - set(initial[value]))
    if not elsewhere:
        return None
    initial[value] = elsewhere[:1]
    return (plan.document, plan.orders | {"initial": initial}), {"bad-step"}


@as_orders
def state_placed_nowhere(chance, plan):
    """Orders with an `initial` that forgets what no task reads."""
    initial = copy.deepcopy(plan.schedule["initial"])
    value = _one(chance, [name for name in sorted(initial) if name[0] == "o"])
    if value is None:
        return None
    del initial[value]
    return (plan.document, plan.orders | {"initial": initial}), {"initial-placement"}


@as_orders
def parameters_placed_nowhere(chance, plan):
    """Orders with an `initial` that forgets what its layer reads."""
    initial = copy.deepcopy(plan.schedule["initial"])
    value = _one(chance, [name for name in sorted(initial) if name[0] == "w"])
    if value is None:
        return None
    del initial[value]
    return (plan.document, plan.orders | {"initial": initial}), {"initial-placement", "bad-step"}


# --- steps ------------------------------------------------------------------------------------------------------------


@as_steps
def initial_missing(chance, plan):
    value = _one(chance, sorted(plan.graph.placeable))
    if value is None:
        return None
    spoilt = copy.deepcopy(plan.schedule)
    del spoilt["initial"][value]
    return (plan.document, spoilt), {"initial-placement"}


@as_steps
def initial_in_too_many_memories(chance, plan):
    value = _one(chance, sorted(plan.graph.placeable))
    if value is None or len(plan.machine.memories) <= plan.graph.copies:
        return None
    spoilt = copy.deepcopy(plan.schedule)
    spoilt["initial"][value] = list(plan.machine.memories)
    return (plan.document, spoilt), {"initial-placement"}


@as_steps
def initial_of_what_has_no_choice(chance, plan):
    spoilt = copy.deepcopy(plan.schedule)
    spoilt["initial"][chance.choice(["x1.0", "s1.0"])] = [next(iter(plan.machine.memories))]
    return (plan.document, spoilt), {"initial-placement"}


@as_steps
def parameters_on_another_device(chance, plan):
    """Nobody else's copy is there to be read."""
    options = [
        (value, memory)
        for value in sorted(plan.graph.placeable)
        if value[0] in "wg"
        for memory in plan.machine.memories
        if memory not in plan.schedule["initial"][value]
    ]
    chosen = _one(chance, options)
    if chosen is None:
        return None
    value, memory = chosen
    spoilt = copy.deepcopy(plan.schedule)
    spoilt["initial"][value] = [memory]
    read = [action for action in plan.actions if any(name == value for _, name in action.needs)]
    return ((plan.document, spoilt), {"read-missing"}) if read else None


@as_steps
def a_copy_is_missing(chance, plan):
    index = _one(chance, plan.copies())
    return index is not None and (_left_out(plan, index), {"read-missing"})


@as_steps
def a_copy_before_the_data_is_made(chance, plan):
    options = []
    for index in plan.copies():
        (place,) = plan.actions[index].needs
        writer = next(action for action in plan.actions if place in action.writes)
        if plan.lasts(writer.duration):
            options.append((index, (writer.start + writer.end) / 2))
    chosen = _one(chance, options)
    if chosen is None:
        return None
    index, middle = chosen
    return _changed(plan, index, start=middle), {"read-missing", "value-busy"}


@as_steps
def read_while_the_data_is_under_way(chance, plan):
    """Start a reader of a copy's value when the link is free again, before the delay has passed."""
    options = []
    for index in plan.copies():
        (place,) = plan.actions[index].writes
        readers = [action for action in plan.actions if action.task is not None and place in action.needs]
        if plan.lasts(plan.actions[index].delay):
            options += [(action.index, plan.actions[index].released) for action in readers]
    chosen = _one(chance, options)
    if chosen is None:
        return None
    index, start = chosen
    return _changed(plan, index, start=start), {"read-missing", "value-busy"}


@as_steps
def two_transfers_on_one_way(chance, plan):
    busy = [index for index in plan.copies() if plan.lasts(plan.actions[index].released - plan.actions[index].start)]
    options = [
        (index, other)
        for index in busy
        for other in busy
        if index != other and plan.actions[index].link == plan.actions[other].link
    ]
    chosen = _one(chance, options)
    if chosen is None:
        return None
    index, other = chosen
    middle = (plan.actions[index].start + plan.actions[index].released) / 2
    return _changed(plan, other, start=middle), {"resource-busy"}


@as_steps
def two_runs_on_one_device(chance, plan):
    options = [
        (index, other)
        for index in plan.runs()
        for other in plan.runs()
        if index != other
        and plan.actions[index].resources == plan.actions[other].resources
        and plan.lasts(plan.actions[index].duration)
        and plan.lasts(plan.actions[other].duration)
    ]
    chosen = _one(chance, options)
    if chosen is None:
        return None
    index, other = chosen
    middle = (plan.actions[index].start + plan.actions[index].end) / 2
    return _changed(plan, other, start=middle), {"resource-busy"}


@as_orders
def a_pair_of_a_forward_and_its_own_backward(chance, plan):
    """At once, where the one reads what the other makes: it waits for itself."""
    options = [
        (device, place, text)
        for device, place, text in plan.entries()
        if text[0] == "F" and any(one in texts_of(plan, device) for one in (f"B{text[1:]}", f"BW{text[1:]}"))
    ]
    chosen = _one(chance, options)
    if chosen is None:
        return None
    device, place, text = chosen
    texts = list(texts_of(plan, device))
    backward = next(one for one in (f"B{text[1:]}", f"BW{text[1:]}") if one in texts)
    texts[place] = f"{text}&{backward}"
    texts.remove(backward)
    return _reordered(plan, device, texts), {"deadlock"}


def texts_of(plan, device):
    return plan.orders["orders"][device]


def _pairs(plan):
    """Return where the second ones of pairs stand that take their time."""
    steps = plan.schedule["steps"]
    return [k for k in plan.runs() if steps[k].get("paired") and plan.lasts(plan.actions[k].duration)]


@as_steps
def a_pair_torn_apart(chance, plan):
    index = _one(chance, _pairs(plan))
    if index is None:
        return None
    return _changed(plan, index, start=plan.schedule["steps"][index]["start"] + 1), {"bad-step"}


@as_steps
def a_pair_that_does_not_say_so(chance, plan):
    index = _one(chance, [k for k in _pairs(plan) if plan.lasts(plan.actions[k - 1].duration)])
    if index is None:
        return None
    return _changed(plan, index, paired=False), {"resource-busy"}


@as_steps
def a_pair_on_two_devices(chance, plan):
    index = _one(chance, _pairs(plan))
    others = sorted({*plan.machine.processors} - {*plan.actions[index].resources}) if index is not None else []
    if not others:
        return None
    return _changed(plan, index, on=[others[0]]), {"bad-step"}


@as_steps
def a_pair_of_what_are_no_forward_and_backward(chance, plan):
    """Mark a task as simultaneous although the previous run is not simultaneous with it."""
    steps = plan.schedule["steps"]
    options = [
        k
        for k in plan.runs()
        if not steps[k].get("paired")
        and (k == 0 or "run" not in steps[k - 1] or steps[k - 1]["run"][0] == steps[k]["run"][0])
    ]
    index = _one(chance, options)
    return None if index is None else (_changed(plan, index, paired=True), {"bad-step"})


@as_steps
def started_too_early_by_one(chance, plan):
    """Start a run too early; all steps of the oracle start at their earliest times."""
    unit = max(1, plan.makespan // 1000)
    options = [index for index in plan.runs() if plan.schedule["steps"][index]["start"] >= unit]
    options = [index for index in options if plan.lasts(unit) and plan.actions[index].duration >= unit]
    index = _one(chance, options)
    if index is None:
        return None
    wrong = {"resource-busy", "read-missing", "value-busy"}
    return _changed(plan, index, start=plan.schedule["steps"][index]["start"] - unit), wrong


@as_steps
def dropped_too_early(chance, plan):
    """Freed by the second to last step that reads it there, so that the last one finds nothing."""
    options = []
    for value in plan.graph.values:
        for memory in plan.machine.memories:
            uses = [a for a in plan.actions if (memory, value) in a.needs or (memory, value) in a.writes]
            for action in uses:
                later = [
                    a for a in uses if a is not action and a.start > action.end and plan.lasts(a.start - action.end)
                ]
                if value not in plan.graph.placeable and later and "run" in plan.schedule["steps"][action.index]:
                    options.append((action.index, value))
    chosen = _one(chance, options)
    if chosen is None:
        return None
    index, value = chosen
    drops = plan.schedule["steps"][index].get("drop", [])
    return _changed(plan, index, drop=[*drops, value]), {"read-missing"}


@as_steps
def parameters_dropped(chance, plan):
    options = [
        (action.index, value)
        for action in plan.actions
        if action.task is not None
        for _, value in action.needs
        if value in plan.graph.placeable
    ]
    chosen = _one(chance, options)
    if chosen is None:
        return None
    index, value = chosen
    drops = plan.schedule["steps"][index].get("drop", [])
    return _changed(plan, index, drop=[*drops, value]), {"pinned-input"}


@as_steps
def parameters_moved_away(chance, plan):
    value = _one(chance, sorted(plan.graph.placeable))
    others = [name for name in plan.machine.memories if value and name not in plan.schedule["initial"][value]]
    if value is None or not others:
        return None
    start, source = plan.makespan, plan.schedule["initial"][value][0]
    step = {"copy": value, "from": source, "to": others[0], "start": start, "drop": True}
    return _added(plan, step), {"pinned-input"}


@as_steps
def a_run_on_a_device_that_cannot_run_it(chance, plan):
    options = [
        (index, device)
        for index in plan.runs()
        for device, kind in plan.machine.types.items()
        if plan.graph.tasks[plan.schedule["steps"][index]["run"]].times is not None
        and kind not in plan.graph.tasks[plan.schedule["steps"][index]["run"]].times
    ]
    chosen = _one(chance, options)
    if chosen is None:
        return None
    index, device = chosen
    return _changed(plan, index, on=[device]), {"bad-step"}


@as_steps
def a_run_on_another_device(chance, plan):
    """Move a run to a device whose memory lacks its inputs."""
    devices = list(plan.machine.processors)
    index = _one(chance, plan.runs())
    (own,) = plan.schedule["steps"][index]["on"]
    others = [name for name in devices if name != own]
    task = plan.graph.tasks[plan.schedule["steps"][index]["run"]]
    if not others or not any(value[0] == "s" for value in task.reads):
        return None
    other = chance.choice(others)
    if task.times is not None and plan.machine.types[other] not in task.times:
        return None
    if any((other, value) in action.writes for value in task.reads for action in plan.actions if value[0] == "s"):
        return None
    return _changed(plan, index, on=[other], drop=[]), {"read-missing"}


@as_steps
def a_run_without_its_device(chance, plan):
    index = _one(chance, plan.runs())
    return _changed(plan, index, on=["nobody"]), {"unknown-processor"}


def _twice(chance, plan, letters):
    options = [index for index in plan.runs() if plan.schedule["steps"][index]["run"].rstrip("0123456789.") in letters]
    index = _one(chance, options)
    if index is None:
        return None
    again = plan.schedule["steps"][index] | {"start": plan.makespan, "drop": []}
    return _added(plan, again), {"once-repeated"}


@as_steps
def b_twice(chance, plan):
    return _twice(chance, plan, "B")


@as_steps
def w_twice(chance, plan):
    return _twice(chance, plan, "W")


@as_steps
def a_backward_left_out(chance, plan):
    options = [index for index in plan.runs() if plan.schedule["steps"][index]["run"][0] in "BW"]
    return _left_out(plan, _one(chance, options)), {"required-missing"}


@as_steps
def a_forward_left_out(chance, plan):
    options = [index for index in plan.runs() if plan.schedule["steps"][index]["run"][0] == "F"]
    return _left_out(plan, _one(chance, options)), {"read-missing"}


@as_steps
def a_half_before_the_other(chance, plan):
    """W while B, which makes what it reads, is running."""
    options = []
    for index in plan.runs():
        name = plan.schedule["steps"][index]["run"]
        first = next((a for a in plan.actions if a.task == f"B{name[1:]}"), None)
        if name[0] == "W" and first is not None and plan.lasts(first.duration):
            options.append((index, first.start))
    chosen = _one(chance, options)
    if chosen is None:
        return None
    index, start = chosen
    return _changed(plan, index, start=start), {"read-missing", "value-busy"}


@as_steps
def a_copy_over_no_link(chance, plan):
    index = _one(chance, plan.copies())
    if index is None:
        return None
    return _changed(plan, index, to=plan.schedule["steps"][index]["from"]), {"unknown-link"}
