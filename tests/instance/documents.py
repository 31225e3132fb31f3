"""Hypothesis strategies: instance documents of every kind, with every field, in bare numbers."""

from hypothesis import strategies as st

SIZES = st.integers(0, 9)
TIMES = st.one_of(st.integers(0, 9), st.sampled_from([0.5, 0.1, 2.75, 1e-9]))
FLAGS = st.booleans()
READS = st.lists(st.sampled_from(["input", "output", "saved"]), max_size=3, unique=True)
PARALLEL = st.fixed_dictionaries({"max": st.integers(1, 8)}, optional={"alpha": st.sampled_from([0, 0.5, 0.9, 1, 1.0])})


def common(kind):
    """Draw the keys that all kinds share; a name is always there, to tell documents apart."""
    return st.fixed_dictionaries(
        {"schema": st.just("remat.instance/1"), "kind": st.just(kind)},
        optional={
            "name": st.text(max_size=5),
            "description": st.text(max_size=5),
            "source": st.text(max_size=5),
            "units": st.fixed_dictionaries(
                {},
                optional={
                    "time": st.sampled_from(["s", "ms", "us", "ns", "unit"]),
                    "memory": st.sampled_from(["B", "unit"]),
                },
            ),
            "static_memory": SIZES,
        },
    )


@st.composite
def machines(draw, *, third=False):
    """Draw a `machine` with up to three memories, several processors and links of all sorts.

    `third`: links that pack what crosses them, too, as the third schema has them.
    """
    memories = ["device", "host", "disk"][: draw(st.integers(1, 3))]
    document = {"memories": [{"name": name} for name in memories]}
    for memory in document["memories"]:
        if draw(FLAGS):
            memory["capacity"] = draw(st.one_of(st.none(), st.integers(0, 100)))
    processors, single = [], []
    for i in range(draw(st.integers(1, 3))):
        entry = {"name": f"p{i}", "memory": draw(st.sampled_from(memories))}
        if draw(FLAGS):
            entry["count"] = draw(st.integers(1, 3))
        processors.append(entry)
        single += [entry["name"]] if entry.get("count", 1) == 1 else [f"{entry['name']}{k}" for k in range(2)]
    document["processors"] = processors
    pairs = [(a, b) for a in memories for b in memories if a != b]
    if pairs:
        document["links"] = []
        for source, target in draw(st.lists(st.sampled_from(pairs), unique=True)):
            link = {"source": source, "target": target}
            if draw(FLAGS):
                link["bandwidth"] = draw(st.one_of(st.none(), st.integers(1, 9), st.just(2.5)))
            if draw(FLAGS):
                link["latency"] = draw(TIMES)
            if draw(FLAGS):
                link["channel"] = draw(st.sampled_from(["bus", *single]))
            if third:
                more = {"ratio": st.sampled_from([1, 0.5, 0.3]), "codec": st.sampled_from([None, 7, 1.5])}
                link |= draw(st.fixed_dictionaries({}, optional=more))
            document["links"].append(link)
    return document


@st.composite
def chains(draw, *, trained=False, sharded=False):
    """Draw a `chain`.

    `trained`: with parameters, in a document of the second schema; `sharded`, too: shared out among ranks, in one of
    the third.
    """
    document = draw(common("chain"))
    document["input_size"] = draw(SIZES)
    variant = st.fixed_dictionaries(
        {},
        optional={
            "name": st.text(max_size=3),
            "saving_forward_time": TIMES,
            "backward_time": TIMES,
            "saved_size": SIZES,
            "saving_workspace": SIZES,
            "backward_workspace": SIZES,
            "backward_reads": READS,
        },
    )
    stage = st.fixed_dictionaries(
        {"forward_time": TIMES, "backward_time": TIMES, "output_size": SIZES},
        optional={
            "name": st.text(max_size=3),
            "saved_size": SIZES,
            "forward_workspace": SIZES,
            "saving_workspace": SIZES,
            "saving_forward_time": TIMES,
            "backward_workspace": SIZES,
            "gradient_size": SIZES,
            "backward_reads": READS,
            "variants": st.lists(variant, max_size=3),
            "repeat": st.integers(1, 3),
        },
    )
    document["stages"] = draw(st.lists(stage, min_size=1, max_size=4))
    if trained:
        document["schema"] = "remat.instance/2"
        parameters = st.fixed_dictionaries(
            {"parameter_size": st.integers(1, 9)},
            optional={"parameter_gradient_size": SIZES, "optimizer_size": SIZES, "update_time": TIMES},
        )
        document["stages"] = [given | draw(st.one_of(st.just({}), parameters)) for given in document["stages"]]
        document |= draw(st.fixed_dictionaries({}, optional={"master_copy": FLAGS}))
    loss = st.fixed_dictionaries({}, optional={"time": TIMES, "workspace": SIZES})
    more = {"loss": loss, "in_place": FLAGS, "backward_reads": READS, "input_gradient": FLAGS}
    document |= draw(st.fixed_dictionaries({}, optional=more | {"machine": machines(third=sharded)}))
    if trained and "machine" in document:
        names = [memory["name"] for memory in document["machine"]["memories"]]
        at = st.sampled_from(names)
        document |= draw(st.fixed_dictionaries({}, optional={"parameter_memory": at, "optimizer_memory": at}))
        for processor in document["machine"]["processors"][1:]:
            processor |= draw(st.fixed_dictionaries({}, optional={"speed": st.sampled_from([1, 0.5, 0.1, 1 / 3])}))
    if sharded:
        document["schema"] = "remat.instance/3"
    if sharded and any("parameter_size" in stage for stage in document["stages"]):
        _share_out(draw, document)
    return document


def _share_out(draw, document):
    """Share a chain's states out among ranks, over a link from the device to itself."""
    ranks = draw(st.integers(1, 9))
    document["sharding"] = {"data": ranks}
    if ranks > 1:
        document["sharding"] |= {"zero": draw(st.integers(0, 3)), "bucket": draw(SIZES)}
    for stage in document["stages"]:
        if "parameter_size" in stage:
            stage |= draw(st.fixed_dictionaries({}, optional={"bucket_size": SIZES}))
    if "machine" in document:
        device = document["machine"]["processors"][0]["memory"]
        way = st.fixed_dictionaries(
            {"source": st.just(device), "target": st.just(device)},
            optional={"bandwidth": st.sampled_from([1, 2, 3, 2.5]), "latency": TIMES, "delay": TIMES},
        )
        document["machine"]["links"] = [*document["machine"].get("links", []), draw(way)]
        for key in ("parameter_memory", "optimizer_memory"):
            if draw(FLAGS):
                document[key] = "any"


@st.composite
def adjoints(draw):
    """Draw an `adjoint`: optionally uniform, with a tape, and with storage levels or a machine."""
    document = draw(common("adjoint"))
    document |= {"forward_time": draw(TIMES), "backward_time": draw(TIMES), "state_size": draw(SIZES)}
    if draw(FLAGS):
        document["adjoint_size"] = draw(SIZES)
    taped = draw(FLAGS)
    of_step = {"forward_time": TIMES, "backward_time": TIMES, "state_size": SIZES, "adjoint_size": SIZES}
    always = {}
    if taped:
        of_step["tape_time"] = TIMES
        if draw(FLAGS):
            document["tape_time"] = draw(TIMES)
        if draw(FLAGS):
            document["tape_size"] = draw(SIZES)
            of_step["tape_size"] = SIZES
        else:
            always["tape_size"] = SIZES
    if always or draw(FLAGS):
        steps = st.lists(st.fixed_dictionaries(always, optional=of_step), min_size=1, max_size=5)
    else:
        steps = st.integers(1, 6)
    document["steps"] = draw(steps)
    where = draw(st.sampled_from(["nowhere", "storage", "machine"]))
    if where == "machine":
        document["machine"] = draw(machines())
    if where == "storage":
        names = ["ram", "disk"][: draw(st.integers(1, 2))]
        document["storage"] = [draw(_levels(name)) for name in names]
        document["initial_state"] = draw(st.sampled_from(["live", *names]))
    return document


def _levels(name):
    rest = {
        "write_time": TIMES,
        "read_time": TIMES,
        "bandwidth": st.one_of(st.none(), st.integers(1, 4), st.just(0.5)),
        "channel": st.sampled_from([None, "io", "processor"]),
    }
    bounds = st.one_of(
        st.just({}), st.fixed_dictionaries({"capacity": SIZES}), st.fixed_dictionaries({"slots": st.integers(0, 4)})
    )
    return st.builds(
        lambda bound, other: {"name": name} | bound | other, bounds, st.fixed_dictionaries({}, optional=rest)
    )


@st.composite
def joins(draw):
    """Draw a `join`: separate chains and their shared fields."""
    first, *others = draw(st.lists(chains(), min_size=1, max_size=3))
    keys = ("input_size", "stages")
    listed = [{key: chain[key] for key in keys} for chain in (first, *others)]
    rest = {key: value for key, value in first.items() if key not in keys}
    return rest | {"schema": "remat.instance/3", "kind": "join", "chains": listed}


@st.composite
def dags(draw):
    """Draw a `dag`, its tasks in a random order."""
    document = draw(common("dag"))
    memories = ["memory"]
    if draw(FLAGS):
        document["machine"] = draw(machines())
        memories = [memory["name"] for memory in document["machine"]["memories"]]
    names = [f"v{i}" for i in range(draw(st.integers(1, 5)))]
    document["values"] = [{"id": name, "size": draw(SIZES)} for name in names]
    inputs = draw(st.lists(st.sampled_from(names), unique=True))
    document["inputs"] = [_place(draw, name, memories) for name in inputs]
    if inputs and draw(FLAGS):
        document["pinned_inputs"] = draw(st.lists(st.sampled_from(inputs), unique=True))
    available, tasks = list(inputs), []
    for i in range(draw(st.integers(1, 5))):
        task = {"id": f"t{i}", "time": draw(TIMES)}
        task["reads"] = draw(st.lists(st.sampled_from(available), unique=True, max_size=3)) if available else []
        if draw(FLAGS):
            task["writes"] = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
            available += [name for name in task["writes"] if name not in available]
        else:
            task["size"] = draw(SIZES)
            available.append(task["id"])
        optional = {
            "workspace": SIZES,
            "in_place": FLAGS,
            "required": FLAGS,
            "recomputable": FLAGS,
            "phase": st.sampled_from(["forward", "backward"]),
            "parallel": PARALLEL,
        }
        task |= draw(st.fixed_dictionaries({}, optional=optional))
        if task.get("required", True) and draw(FLAGS):
            task["once"] = True
        tasks.append(task)
    missing = [name for name in names if name not in available]
    if missing:
        tasks.append({"id": "rest", "time": 1, "writes": missing})
    document["tasks"] = draw(st.permutations(tasks))
    if draw(FLAGS):
        values = draw(st.lists(st.sampled_from([*names, *available]), unique=True, max_size=3))
        document["outputs"] = [_place(draw, name, memories) for name in values]
    return document


ANNOTATIONS = {
    "tasks": {
        "origin": st.fixed_dictionaries({}, optional={key: st.text(max_size=3) for key in ("module", "op", "source")})
    },
    "values": {
        "shape": st.one_of(st.none(), st.lists(st.integers(0, 2**62), max_size=3).map(tuple)),
        "dtype": st.text(max_size=3),
    },
}
"""Annotations of the tasks and values of a `dag` for human readers."""


@st.composite
def annotated(draw):
    """Draw a `dag`, and the same one with annotations, in a document of the third schema."""
    document = draw(dags())
    fields = {key: st.fixed_dictionaries({}, optional=optional) for key, optional in ANNOTATIONS.items()}
    listed = {key: [entry | draw(fields[key]) for entry in document[key]] for key in ANNOTATIONS}
    return document, document | {"schema": "remat.instance/3"} | listed


def _place(draw, name, memories):
    if draw(FLAGS):
        return name
    return {"value": name} | ({"memory": draw(st.sampled_from(memories))} if draw(FLAGS) else {})


@st.composite
def trees(draw):
    """Draw a `tree` whose nodes are numbered at random."""
    document = draw(common("tree"))
    n = draw(st.integers(1, 7))
    above = [-1] + [draw(st.integers(0, i - 1)) for i in range(1, n)]
    number = draw(st.permutations(range(n)))
    parent = [0] * n
    for node, over in enumerate(above):
        parent[number[node]] = -1 if over == -1 else number[over]
    document["parent"] = parent
    document["output_size"] = draw(st.lists(SIZES, min_size=n, max_size=n))
    optional = {
        "workspace": st.lists(SIZES, min_size=n, max_size=n),
        "time": st.lists(TIMES, min_size=n, max_size=n),
        "orientation": st.sampled_from(["in", "out"]),
        "names": st.just([f"node {i}" for i in range(n)]),
        "parallel": PARALLEL,
        "machine": machines(),
    }
    return document | draw(st.fixed_dictionaries({}, optional=optional))


@st.composite
def pipelines(draw):
    """Draw a `pipeline` on a cluster of several types and levels."""
    document = draw(common("pipeline")) | {"schema": "remat.instance/3"}
    document.pop("static_memory", None)
    kinds = ["quick", "slow"]
    devices, types = [], []
    for number in range(draw(st.integers(1, 3))):
        optional = {
            "type": st.sampled_from(kinds),
            "count": st.integers(1, 3),
            "memory": st.one_of(st.none(), st.integers(0, 100)),
        }
        devices.append({"name": f"d{number}"} | draw(st.fixed_dictionaries({}, optional=optional)))
        types.append(devices[-1].get("type", f"d{number}"))
    packing = {"ratio": st.sampled_from([1, 0.5, 0.3]), "codec": st.sampled_from([None, 7, 1.5])}
    packing = packing if draw(FLAGS) else {}
    rates = {"bandwidth": st.one_of(st.none(), st.integers(1, 9)), "latency": TIMES, "delay": TIMES}
    level = st.fixed_dictionaries({}, optional=rates | packing)
    document["cluster"] = {"devices": devices}
    if draw(FLAGS):
        sizes = draw(st.sampled_from([[], [1], [2], [2, 4], [3, 6]]))
        levels = [draw(level) | {"devices": size} for size in sizes] + [draw(level)]
        if draw(FLAGS):
            levels[-1]["devices"] = 12
        document["cluster"]["levels"] = levels
    document["layers"] = draw(st.lists(_layers(types), min_size=1, max_size=3))
    document["micro_batches"] = draw(st.integers(1, 3))
    if draw(FLAGS):
        document["cluster"]["host"] = draw(level | st.just({"memory": 50}))
    optional = {"copies": st.integers(1, 3), "backward_reads": READS, "weights": st.just("flush")}
    document |= draw(st.fixed_dictionaries({}, optional=optional))
    return document if "copies" in document or draw(FLAGS) else draw(_in_slices(document))


@st.composite
def _in_slices(draw, document):
    """Cut the sequences of a pipeline into slices, some of which may be taken otherwise, too."""
    cut = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    spans = {(size, sum(cut[:number])) for number, size in enumerate(cut)}
    if sum(cut) > 1:
        spans.add((1, draw(st.integers(0, sum(cut) - 1))))
    sizes = ("output_size", "saved_size", "gradient_size", "forward_workspace", "backward_workspace")
    sizes += ("cache_gradient_size",)

    def work(layer):
        found = draw(st.fixed_dictionaries({}, optional=dict.fromkeys(sizes, SIZES)))
        for key in ("forward_time", "backward_time", "weight_time"):
            if key in layer:
                zero = layer[key] == 0
                given = layer[key]
                found[key] = {name: draw(TIMES) for name in given} if isinstance(given, dict) else draw(TIMES)
                if key == "weight_time":  # in halves, or not, as the layer
                    found[key] = 0 if zero else found[key] or 1
        return found

    rows = [
        {"tokens": size, "layers": [work(layer) for layer in document["layers"]]}
        | ({"before": before} if before or draw(FLAGS) else {})
        for size, before in sorted(spans)
    ]
    tokens = {"length": sum(cut), "slices": rows, "cut": cut}
    return document | {"tokens": tokens, "micro_batches": len(cut) * draw(st.integers(1, 2))}


@st.composite
def _layers(draw, types):
    able = draw(st.sampled_from(types))
    partly = st.lists(st.sampled_from(types), unique=True).map(lambda some: {*some, able})
    times = st.one_of(
        TIMES, st.builds(lambda names, time: {name: time + len(name) for name in sorted(names)}, partly, TIMES)
    )
    layer = {"forward_time": draw(times), "backward_time": draw(times)}
    sizes = ("output_size", "saved_size", "gradient_size", "forward_workspace", "backward_workspace")
    sizes += ("parameter_size", "parameter_gradient_size", "optimizer_size")
    more = {"name": st.text(max_size=3), "repeat": st.integers(1, 3), "backward_reads": READS}
    layer |= draw(st.fixed_dictionaries({}, optional=dict.fromkeys(sizes, SIZES) | more))
    if draw(FLAGS):
        layer["weight_time"] = draw(times)
        if layer["weight_time"] != 0:
            layer |= draw(st.fixed_dictionaries({}, optional={"weight_saved_size": SIZES}))
    return layer


documents = st.one_of(
    chains(),
    chains(trained=True),
    chains(trained=True, sharded=True),
    adjoints(),
    dags(),
    trees(),
    pipelines(),
    joins(),
)
"""Any instance."""
