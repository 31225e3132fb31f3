"""Rewrite an instance document so that it describes the same problem: other orders, other names, other scales.

Each function takes a document (and a `random.Random`), leaves it as it is, and returns a new one, or None where it does
not apply. The answers for both documents must agree: equal, in the same order of worth, or multiplied by the factor.
The functions read documents only, and nothing of `remat`.

======================  ================================================================================================
function                required relation of the answers
======================  ================================================================================================
`permute_memories`      equal (by name, where they are by memory)
`permute_processors`    equal; the devices of a pipeline: for algorithms that try several rows of them
`permute_links`         equal
`permute_values`        equal makespans and claims (values, inputs, outputs and other sets)
`permute_tasks`         equal for algorithms that do not depend on the reference order: the list may be that order
`rename_all`            equal, with the names of `new_names`
`add_unused_memory`     not worse
`scale_times`           times multiplied
`scale_sizes`           sizes multiplied; budgets must be multiplied, too
======================  ================================================================================================
"""

from __future__ import annotations

import copy
import itertools
import math

ANY = "any"
LIVE = "live"
PREVIOUS = "previous"
DEFAULT_MACHINE = {
    "memories": [{"name": "memory"}],
    "processors": [{"name": "processor", "memory": "memory"}],
}
LARGEST = 2**62


# --- orders -----------------------------------------------------------------------------------------------------------


def permute_memories(document, rng):
    """List the memories of the machine, or the levels of an adjoint's storage, in another order."""
    owner, key = (document, "storage") if "storage" in document else (document.get("machine") or {}, "memories")
    listed = _shuffled(owner.get(key, ()), rng)
    if listed is None:
        return None
    changed = copy.deepcopy(document)
    (changed if key == "storage" else changed["machine"])[key] = listed
    return changed


def permute_processors(document, rng):
    """List processors in another order in which the first one of speed 1 works in the same memory, as the same type.

    Of a pipeline: list devices in another order, where no level of the cluster and no ranks group neighbours.
    """
    if document["kind"] == "pipeline":
        return _permute_devices(document, rng)
    listed = (document.get("machine") or {}).get("processors", ())
    orders = [order for order in _orders(listed, rng) if _reference(order) == _reference(listed)]
    changed = next((order for order in orders if order != list(listed)), None)
    if changed is None:
        return None
    result = copy.deepcopy(document)
    result["machine"]["processors"] = copy.deepcopy(changed)
    return result


def _orders(listed, rng):
    for _ in range(8):
        order = list(listed)
        rng.shuffle(order)
        yield order


def _reference(processors):
    """Return memory and type of the first processor of speed 1."""
    first = next((one for one in processors if one.get("speed", 1) == 1), None)
    return None if first is None else (first["memory"], first.get("type"))


def _permute_devices(document, rng):
    cluster = document["cluster"]
    grouped = any(level.get("devices") is not None for level in cluster.get("levels", ()))
    if grouped or "sharding" in document or any("tensor" in layer for layer in document["layers"]):
        return None
    listed = _shuffled(cluster["devices"], rng)
    if listed is None:
        return None
    changed = copy.deepcopy(document)
    changed["cluster"]["devices"] = listed
    return changed


def permute_links(document, rng):
    """List links in another order, and the channels of each."""
    links = (document.get("machine") or {}).get("links", ())
    listed = _shuffled(links, rng) or copy.deepcopy(list(links))
    for link in listed:
        if isinstance(link.get("channel"), list):
            rng.shuffle(link["channel"])
    if listed == list(links):
        return None
    changed = copy.deepcopy(document)
    changed["machine"]["links"] = listed
    return changed


def permute_values(document, rng):
    """List values, inputs, outputs, and what is a set in other kinds, in another order."""
    changed = copy.deepcopy(document)
    for key in ("values", "inputs", "pinned_inputs", "outputs", "chains"):
        if isinstance(changed.get(key), list):
            rng.shuffle(changed[key])
    owners = [changed, *changed.get("tasks", ()), *changed.get("layers", ()), *changed.get("stages", ())]
    owners += [stage for chain in changed.get("chains", ()) for stage in chain["stages"]]
    owners += [part for task in changed.get("tasks", ()) for part in task.get("parts", ())]
    owners += [variant for owner in owners for variant in owner.get("variants", ())]
    for owner in owners:
        for key in ("reads", "writes", "on", "backward_reads"):
            if isinstance(owner.get(key), list):
                rng.shuffle(owner[key])
    return None if changed == document else changed


def permute_tasks(document, rng):
    """List the tasks of a graph, or number the nodes of a tree, in another order."""
    if document["kind"] == "dag":
        listed = _shuffled(document["tasks"], rng)
        return None if listed is None else copy.deepcopy(document) | {"tasks": listed}
    if document["kind"] != "tree" or len(document["parent"]) < 2:
        return None
    count = len(document["parent"])
    order = rng.sample(range(count), count)
    new = {old: position for position, old in enumerate(order)} | {-1: -1}
    changed = copy.deepcopy(document)
    changed["parent"] = [new[document["parent"][old]] for old in order]
    for key in ("output_size", "workspace", "time", "names"):
        if changed.get(key) is not None:
            changed[key] = [document[key][old] for old in order]
    return None if changed == document else changed


def _shuffled(listed, rng):
    """Return a copy in another order, or None if no other order exists."""
    order = copy.deepcopy(list(listed))
    for _ in range(8):
        rng.shuffle(order)
        if order != list(listed):
            return order
    return None


# --- names ------------------------------------------------------------------------------------------------------------


def rename_all(document, rng):
    """Give everything that has a name another one, in another alphabetical order; equal names stay equal."""
    return _Renaming(rng).document(document)


def new_names(before, after):
    """Return old name -> new name of memories, given a document and its result of `rename_all`."""
    return dict(zip(_memory_names(before), _memory_names(after), strict=True))


def _memory_names(document):
    if document["kind"] == "pipeline":
        return [*_device_names(document["cluster"]["devices"]), *(["host"] if "host" in document["cluster"] else ())]
    if "storage" in document:
        return ["working", *(level["name"] for level in document["storage"])]
    return [memory["name"] for memory in (document.get("machine") or DEFAULT_MACHINE)["memories"]]


def _device_names(devices):
    return [name for device in devices for name in expanded(device)]


def expanded(entry):
    """Return the names of `count` equal processors or devices."""
    count = entry.get("count", 1)
    return [entry["name"]] if count == 1 else [f"{entry['name']}{index}" for index in range(count)]


class _Names:
    """A map from old names to independently drawn new names."""

    def __init__(self, rng, known=()):
        self._rng, self._used = rng, set()
        self.known = {name: name for name in known}

    def fresh(self):
        """Return an unused name that ends in a letter, so that a number may follow."""
        while True:
            name = "".join(self._rng.choices("bcdfghjkmnpqrtvwxz", k=5)) + "_q"
            if name not in self._used:
                self._used.add(name)
                return name

    def __getitem__(self, name):
        if name not in self.known:
            self.known[name] = self.fresh()
        return self.known[name]


class _Renaming:
    """One renaming of everything; `None` where a document's names have more than one meaning."""

    def __init__(self, rng):
        self.rng = rng
        self.memories, self.processors = _Names(rng), _Names(rng)
        self.channels, self.types = _Names(rng), _Names(rng)
        self.tasks, self.values, self.texts = _Names(rng), _Names(rng), _Names(rng, ["", PREVIOUS])

    def document(self, document):
        result = copy.deepcopy(document)
        if "name" in result:
            result["name"] = self.texts[result["name"]]
        rename = {
            "chain": self._chain,
            "adjoint": self._adjoint,
            "dag": self._dag,
            "tree": self._tree,
            "join": self._join,
            "pipeline": self._pipeline,
        }[document["kind"]]
        has_machine = "storage" not in result and document["kind"] != "pipeline"
        if has_machine and not self._machine(result):
            return None
        rename(result)
        return result

    def _machine(self, result):
        machine = result.get("machine")
        if not machine:
            self.memories.known["memory"], self.processors.known["processor"] = "memory", "processor"
            self._keep_any({"memories": [{"name": "memory"}]})
            return True
        self._keep_any(machine)
        if not self._processors(machine["processors"]):
            return False
        for memory in machine["memories"]:
            memory["name"] = self.memories[memory["name"]]
        for processor in machine["processors"]:
            processor["memory"] = self.memories[processor["memory"]]
            if processor.get("type") is not None:
                processor["type"] = self.types[processor["type"]]
        links = machine.get("links", [])
        own = {f"{link['source']}->{link['target']}": link for link in links}
        for link in links:  # a channel may be called like a link's own one
            name = f"{self.memories[link['source']]}->{self.memories[link['target']]}"
            self.channels.known[f"{link['source']}->{link['target']}"] = name
        if any(name in self.processors.known for name in own):
            return False
        for link in links:
            link["source"], link["target"] = self.memories[link["source"]], self.memories[link["target"]]
            if link.get("channel") is not None:
                named = link["channel"]
                several = [self._channel(one) for one in ([named] if isinstance(named, str) else named)]
                link["channel"] = several[0] if isinstance(named, str) else several
        return True

    def _keep_any(self, machine):
        """`any` means that the schedule chooses, unless a memory is called so."""
        if all(memory["name"] != ANY for memory in machine["memories"]):
            self.memories.known[ANY] = ANY

    def _processors(self, entries):
        """Rename processors or devices, equal ones together; False where two readings of a name differ."""
        for entry in entries:
            name = self.processors.fresh()
            renamed = entry | {"name": name}
            for old, new in zip(expanded(entry), expanded(renamed), strict=True):
                if old in self.processors.known:
                    return False
                self.processors.known[old] = new
            if entry.get("count", 1) > 1 and entry["name"] in self.channels.known:
                return False
            entry["name"] = name
        return True

    def _channel(self, name):
        return self.processors[name] if name in self.processors.known else self.channels[name]

    def _texts(self, entries):
        for entry in entries:
            if "name" in entry:
                entry["name"] = self.texts[entry["name"]]

    def _chain(self, result):
        for key in ("parameter_memory", "optimizer_memory"):
            if result.get(key) is not None:
                result[key] = self.memories[result[key]]
        self._stages(result["stages"])

    def _stages(self, stages):
        self._texts(stages)
        for stage in stages:
            self._texts(stage.get("variants", ()))

    def _join(self, result):
        self._texts(result["chains"])
        for chain in result["chains"]:
            self._stages(chain["stages"])

    def _adjoint(self, result):
        self.channels.known["processor"] = "processor"  # that of a machine made from storage
        for level in result.get("storage", ()):
            level["name"] = self.memories[level["name"]]
            if level.get("channel") is not None:
                level["channel"] = self.channels[level["channel"]]
        if result.get("initial_state", LIVE) != LIVE:
            result["initial_state"] = self.memories[result["initial_state"]]

    def _tree(self, result):
        if result.get("names") is not None:
            result["names"] = [self.texts[name] for name in result["names"]]

    def _dag(self, result):
        for value in result.get("values", ()):
            value["id"] = self.values[value["id"]]
        for task in result["tasks"]:
            if task.get("size") is not None and task.get("writes") is None:
                self.tasks.known[task["id"]] = self.values[task["id"]]
        for task in result["tasks"]:
            task["id"] = self.tasks[task["id"]]
            self._lists(task, ("reads", "writes"), self.values)
            self._lists(task, ("on",), self.processors)
            if isinstance(task["time"], dict):
                task["time"] = {self.types[name]: time for name, time in task["time"].items()}
            for part in task.get("parts", ()):
                self._lists(part, ("reads", "writes"), self.values)
                if part.get("memory") is not None:
                    part["memory"] = self.memories[part["memory"]]
        self._lists(result, ("pinned_inputs",), self.values)
        for key in ("inputs", "outputs"):
            if key in result:
                result[key] = [self._place(place) for place in result[key]]

    def _place(self, place):
        if isinstance(place, str):
            return self.values[place]
        place["value"] = self.values[place["value"]]
        if place.get("memory") is not None:
            place["memory"] = self.memories[place["memory"]]
        return place

    @staticmethod
    def _lists(owner, keys, names):
        for key in keys:
            if owner.get(key) is not None:
                owner[key] = [names[name] for name in owner[key]]

    def _pipeline(self, result):
        devices = result["cluster"]["devices"]
        before = [device["name"] for device in devices]
        self._processors(devices)
        for old, device in zip(before, devices, strict=True):
            if device.get("type") is None:
                self.types.known.setdefault(old, device["name"])
        for old, device in zip(before, devices, strict=True):
            kind = self.types[old if device.get("type") is None else device["type"]]
            if device.get("type") is not None or kind != device["name"]:
                device["type"] = kind
        self._texts(result["layers"])
        for layer in result["layers"]:
            self._lists(layer, ("reads",), self.texts)
        for owner in _objects(result):
            for key, time in owner.items():
                if key.endswith("_time") and isinstance(time, dict):
                    owner[key] = {self.types[name]: one for name, one in time.items()}


# --- memories that nobody uses ----------------------------------------------------------------------------------------


def add_unused_memory(document, rng):
    """Add a memory that data cannot reach and return from: no link, links in one direction, or a self-link."""
    if document["kind"] == "pipeline" or "storage" in document:
        return None
    changed = copy.deepcopy(document)
    if not changed.get("machine"):
        changed["machine"] = copy.deepcopy(DEFAULT_MACHINE)
    machine = changed["machine"]
    names = [memory["name"] for memory in machine["memories"]]
    name = next(name for name in map("spare{}".format, itertools.count()) if name not in names)
    spare = {"name": name, **({"capacity": rng.choice([0, 1, 10**9])} if rng.random() < 0.5 else {})}
    machine["memories"].insert(rng.randint(0, len(names)), spare)
    form = rng.choice(["alone", "alone", "to", "itself"])
    if form == "itself" and changed.get("schema") != "remat.instance/3":
        form = "to"  # a link to a memory itself came with the third schema
    if form != "alone":
        source = name if form == "itself" else rng.choice(names)
        links = machine.setdefault("links", [])
        links.insert(rng.randint(0, len(links)), {"source": source, "target": name, "bandwidth": rng.choice([1, 1000])})
    return changed


# --- scales -----------------------------------------------------------------------------------------------------------

_SIZES = frozenset(["size", "capacity", "static", "static_memory", "bucket", "workspace"])
_TIMES = frozenset(["time", "latency", "delay"])
_RATES = frozenset(["bandwidth", "codec"])
_NO_FIGURES = frozenset(["units", "origin", "shape", "parallel", "annotations"])


class _NotScaled(Exception):
    """A figure is text, or would not be exact."""


def scale_times(document, factor):
    """Multiply all times by a whole number; exactly, or None."""
    defaults = {"adjoint": {"forward_time": 1, "backward_time": 1}}
    return _scaled(document, defaults, _is_time, factor, 1, factor)


def scale_sizes(document, factor):
    """Multiply all sizes by an integer without changing transfer times; return None if that is inexact."""
    if document.get("sharding") is not None:  # shares of ranks are rounded
        return None
    return _scaled(document, {"adjoint": {"state_size": 1}}, _is_size, factor, factor, 1)


def _scaled(document, defaults, is_scaled, factor, more_bytes, more_time):
    result = copy.deepcopy(document)
    for key, default in defaults.get(document["kind"], {}).items():
        result.setdefault(key, default)
    if document["kind"] == "tree" and result.get("time") is None:
        result["time"] = [1] * len(result["parent"])
    try:
        for owner in _objects(result):
            for key, figure in owner.items():
                if is_scaled(key, figure):
                    owner[key] = _times(figure, factor)
                elif key in _RATES and figure is not None:
                    owner[key] = _divided(_times(figure, more_bytes), more_time)
    except _NotScaled:
        return None
    return None if is_scaled is _is_size and _largest_total(result) > LARGEST else result


def _largest_total(document):
    """Return at least the bytes of everything: instances have at most 2^62."""
    figures, repeats = 0, [1, document["steps"] if isinstance(document.get("steps"), int) else 1]
    for owner in _objects(document):
        for key, figure in owner.items():
            if _is_size(key, figure):
                figures += sum(figure) if isinstance(figure, list) else figure
            elif key in ("repeat", "micro_batches", "samples", "stream", "copies") and isinstance(figure, int):
                repeats.append(figure)
    return 8 * figures * math.prod(repeats)


def _is_time(key, figure):
    return (key in _TIMES or key.endswith("_time")) and figure is not None


def _is_size(key, figure):
    if key == "memory":  # of a device; of anything else, a name
        return isinstance(figure, int)
    return (key in _SIZES or key.endswith(("_size", "_workspace"))) and figure is not None


def _objects(node, key=""):
    """Yield all objects of a document that have figures."""
    if key in _NO_FIGURES:
        return
    if isinstance(node, dict):
        yield node
        for name, child in list(node.items()):
            yield from _objects(child, name)
    elif isinstance(node, list):
        for child in node:
            yield from _objects(child)


def _times(figure, factor):
    if isinstance(figure, dict):
        return {name: _times(one, factor) for name, one in figure.items()}
    if isinstance(figure, list):
        return [_times(one, factor) for one in figure]
    if isinstance(figure, bool) or not isinstance(figure, (int, float)):
        raise _NotScaled
    if isinstance(figure, float) and math.frexp(factor)[0] != 0.5:
        raise _NotScaled
    product = figure * factor
    if product > LARGEST:
        raise _NotScaled
    return product


def _divided(rate, divisor):
    if isinstance(rate, int) and rate % divisor == 0:
        return rate // divisor
    if math.frexp(divisor)[0] != 0.5 or rate > 2**53:
        raise _NotScaled
    return rate / divisor
