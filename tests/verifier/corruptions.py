"""Corruptions that break a valid schedule in one place, each with the expected violation.

Every function takes a random generator and a valid `Sample`. It returns the corrupted steps, the index of the step to
blame (None: the schedule), and the rules of which one must be reported there. It returns None if the sample has no
suitable place.
"""

import copy
from dataclasses import dataclass

CORRUPTIONS = {}


@dataclass
class Sample:
    """A valid schedule: plain steps with starts, the instance, and the verifier's report."""

    case: object
    steps: list
    report: object

    def lasts(self, index):
        """Whether a step is clearly longer than the tolerance of an instant."""
        return self.report.end[index] - self.report.start[index] > 1e-6 * self.report.makespan

    def middle(self, index):
        return (self.report.start[index].item() + self.report.end[index].item()) / 2

    def memory(self, step):
        """Where a run works, a copy reads, a drop frees."""
        if "run" not in step:
            return step.get("from") or step["memory"]
        machine = self.case.machine
        processor = machine.processor_index[step["on"][0]] if step.get("on") else 0
        return machine.memories[machine.processors[processor].memory].name

    def task(self, step):
        return next(task for task in self.case.document["tasks"] if task["id"] == step["run"])

    def reads(self, step):
        """The (memory, value) pairs that a step reads from start to end."""
        if "run" in step:
            return [(self.memory(step), value) for value in self.task(step).get("reads", [])]
        return [(step["from"], step["copy"])] if "copy" in step else []

    def writes(self, step):
        if "run" in step:
            return [(self.memory(step), value) for value in self.task(step).get("writes", [])]
        return [(step["to"], step["copy"])] if "copy" in step else []

    def inputs(self):
        first = self.case.machine.memories[0].name
        listed = self.case.document["inputs"]
        return [(first, e) if isinstance(e, str) else (e.get("memory") or first, e["value"]) for e in listed]

    def resources(self, index):
        """Names of what a step occupies."""
        step = self.steps[index]
        machine = self.case.machine
        if "run" in step:
            return set(step.get("on") or [machine.processors[0].name])
        if "copy" in step:
            ends = machine.memory_index[step["from"]], machine.memory_index[step["to"]]
            return {machine.links[machine.link_index[ends]].channel}
        return set()

    def indices(self, kind):
        return [index for index, step in enumerate(self.steps) if kind in step]


def corruption(function):
    CORRUPTIONS[function.__name__.replace("_", " ")] = function
    return function


def _one(chance, options):
    options = list(options)
    return chance.choice(options) if options else None


def _changed(sample, index, **change):
    steps = copy.deepcopy(sample.steps)
    steps[index] |= change
    return steps


@corruption
def unknown_task(chance, sample):
    index = _one(chance, sample.indices("run"))
    return index is not None and (_changed(sample, index, run="nobody", drop=[]), index, {"unknown-task"})


@corruption
def unknown_value_copied(chance, sample):
    index = _one(chance, sample.indices("copy"))
    return index is not None and (_changed(sample, index, copy="nothing"), index, {"unknown-value"})


@corruption
def unknown_value_dropped(chance, sample):
    index = _one(chance, [i for i, step in enumerate(sample.steps) if "copy" not in step])
    if index is None:
        return None
    drops = [*sample.steps[index].get("drop", []), "nothing"]
    return _changed(sample, index, drop=drops), index, {"unknown-value"}


@corruption
def unknown_memory(chance, sample):
    index = _one(chance, [i for i, step in enumerate(sample.steps) if "run" not in step])
    if index is None:
        return None
    key = chance.choice(("from", "to")) if "copy" in sample.steps[index] else "memory"
    return _changed(sample, index, **{key: "nowhere"}), index, {"unknown-memory"}


@corruption
def unknown_processor(chance, sample):
    index = _one(chance, sample.indices("run"))
    return index is not None and (_changed(sample, index, on=["nobody"]), index, {"unknown-processor"})


@corruption
def unknown_link(chance, sample):
    index = _one(chance, sample.indices("copy"))
    if index is None:
        return None
    return _changed(sample, index, to=sample.steps[index]["from"]), index, {"unknown-link"}


@corruption
def negative_start(chance, sample):
    index = _one(chance, range(len(sample.steps)))
    return index is not None and (_changed(sample, index, start=-chance.choice((1, 0.25))), index, {"bad-step"})


@corruption
def too_many_processors(chance, sample):
    machine = sample.case.machine
    plain = [i for i in sample.indices("run") if not sample.task(sample.steps[i]).get("parallel")]
    index = _one(chance, plain)
    if index is None or len(machine.processors) < 2:
        return None
    names = [processor.name for processor in machine.processors]
    return _changed(sample, index, on=names), index, {"bad-step"}


@corruption
def one_processor_twice(chance, sample):
    index = _one(chance, sample.indices("run"))
    if index is None:
        return None
    name = sample.case.machine.processors[0].name
    return _changed(sample, index, on=[name, name]), index, {"bad-step"}


@corruption
def drop_of_a_stranger(chance, sample):
    index = _one(chance, sample.indices("run"))
    if index is None:
        return None
    step = sample.steps[index]
    own = {value for _, value in sample.reads(step) + sample.writes(step)}
    value = _one(chance, [name for name in sample.case.graph.values if name not in own])
    if value is None:
        return None
    return _changed(sample, index, drop=[*step.get("drop", []), value]), index, {"bad-step"}


@corruption
def wrong_number_of_bytes(chance, sample):
    index = _one(chance, [i for i in sample.indices("copy") if "bytes" in sample.steps[i]])
    if index is None:
        return None
    size = int(sample.case.graph.size[sample.case.graph.value(sample.steps[index]["copy"])])
    return _changed(sample, index, bytes=chance.choice((0, size, size + 1))), index, {"bad-bytes"}


@corruption
def part_without_drop(chance, sample):
    index = _one(chance, [i for i in sample.indices("copy") if "bytes" in sample.steps[i]])
    return index is not None and (_changed(sample, index, drop=False), index, {"bad-bytes"})


@corruption
def drop_of_what_is_not_there(chance, sample):
    absent = [
        {"drop": [value], "memory": memory.name, "start": sample.report.makespan}
        for memory in sample.case.machine.memories
        for value in sample.case.graph.values
        if not _ever_there(sample, (memory.name, value))
    ]
    step = _one(chance, absent)
    return step and ([*sample.steps, step], len(sample.steps), {"free-missing"})


def _ever_there(sample, place):
    """Return whether the memory ever holds bytes of the value."""
    return place in sample.inputs() or any(place in sample.writes(step) for step in sample.steps)


@corruption
def pinned_input_freed(chance, sample):
    pinned = sample.case.document.get("pinned_inputs", [])
    place = _one(chance, [(memory, value) for memory, value in sample.inputs() if value in pinned])
    if place is None:
        return None
    step = {"drop": [place[1]], "memory": place[0], "start": sample.report.makespan}
    return [*sample.steps, step], len(sample.steps), {"pinned-input"}


@corruption
def drop_while_read(chance, sample):
    pinned = sample.case.document.get("pinned_inputs", [])
    options = [
        (index, place)
        for index, step in enumerate(sample.steps)
        if sample.lasts(index)
        for place in sample.reads(step)
        if place[1] not in pinned
    ]
    chosen = _one(chance, options)
    if chosen is None:
        return None
    index, (memory, value) = chosen
    step = {"drop": [value], "memory": memory, "start": sample.middle(index)}
    return [*sample.steps, step], len(sample.steps), {"value-busy"}


@corruption
def drop_while_written(chance, sample):
    pinned = sample.case.document.get("pinned_inputs", [])
    options = [
        (index, place)
        for index, step in enumerate(sample.steps)
        if sample.lasts(index)
        for place in sample.writes(step)
        if place[1] not in pinned
    ]
    chosen = _one(chance, options)
    if chosen is None:
        return None
    index, (memory, value) = chosen
    step = {"drop": [value], "memory": memory, "start": sample.middle(index)}
    return [*sample.steps, step], len(sample.steps), {"value-busy"}


@corruption
def overlapping_resource(chance, sample):
    index = _one(chance, [i for i, step in enumerate(sample.steps) if "drop" not in step and sample.lasts(i)])
    if index is None:
        return None
    again = copy.deepcopy(sample.steps[index]) | {"start": sample.middle(index)}
    return [*sample.steps, again], len(sample.steps), {"resource-busy"}


@corruption
def start_before_the_resource_is_free(chance, sample):
    options = [
        (before, index)
        for index in range(len(sample.steps))
        for before in range(index)
        if sample.lasts(before)
        and sample.report.end[before] == sample.report.start[index]
        and sample.resources(before) & sample.resources(index)
    ]
    chosen = _one(chance, options)
    if chosen is None:
        return None
    before, index = chosen
    return _changed(sample, index, start=sample.middle(before)), index, {"resource-busy"}


@corruption
def read_before_it_is_written(chance, sample):
    options = []
    for index, step in enumerate(sample.steps):
        for place in sample.reads(step):
            writer = _latest_writer(sample, index, place)
            if writer is not None and sample.lasts(writer):
                options.append((writer, index))
    chosen = _one(chance, options)
    if chosen is None:
        return None
    writer, index = chosen
    return _changed(sample, index, start=sample.middle(writer)), index, {"read-missing", "value-busy"}


def _latest_writer(sample, index, place):
    writers = [i for i in range(index) if place in sample.writes(sample.steps[i])]
    return writers[-1] if writers else None


@corruption
def dropped_producer(chance, sample):
    """Leave out the one step that ever wrote what another reads."""
    inputs = sample.inputs()
    options = []
    for index, step in enumerate(sample.steps):
        for place in sample.reads(step):
            writers = [i for i, other in enumerate(sample.steps) if place in sample.writes(other)]
            if len(writers) == 1 and place not in inputs and writers[0] < index:
                options.append((writers[0], index))
    chosen = _one(chance, options)
    if chosen is None:
        return None
    writer, index = chosen
    # The index of every later step decreases by one.
    return sample.steps[:writer] + sample.steps[writer + 1 :], index - 1, {"read-missing"}


@corruption
def run_twice(chance, sample):
    tasks = {index: sample.task(sample.steps[index]) for index in sample.indices("run")}
    single = [i for i, task in tasks.items() if task.get("once") or not task.get("recomputable", True)]
    index = _one(chance, single)
    if index is None:
        return None
    once = tasks[index].get("once")
    again = copy.deepcopy(sample.steps[index]) | {"start": sample.report.makespan, "drop": []}
    return [*sample.steps, again], len(sample.steps), {"once-repeated" if once else "not-recomputable"}


@corruption
def required_task_left_out(chance, sample):
    runs = [step["run"] for step in sample.steps if "run" in step]
    options = [i for i in sample.indices("run") if sample.task(sample.steps[i])["required"]]
    index = _one(chance, [i for i in options if runs.count(sample.steps[i]["run"]) == 1])
    if index is None:
        return None
    return sample.steps[:index] + sample.steps[index + 1 :], None, {"required-missing"}


@corruption
def output_dropped(chance, sample):
    pinned = sample.case.document.get("pinned_inputs", [])
    outputs = [place for place in sample.case.document["outputs"] if place["value"] not in pinned]
    place = _one(chance, outputs)
    if place is None:
        return None
    step = {"drop": [place["value"]], "memory": place["memory"], "start": sample.report.makespan}
    return [*sample.steps, step], None, {"output-missing"}
