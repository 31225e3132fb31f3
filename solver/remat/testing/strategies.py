"""Hypothesis strategies for small instance documents of all kinds.

They draw plain documents (`dict`), so that a falsifying example can be pasted into a file. Sizes and times are
small, with many zeros and ties, and now and then large or fractional: that is where algorithms go wrong.
"""

from __future__ import annotations

from hypothesis import strategies as st

from remat.testing.figures import READS, Document, Figures, head
from remat.testing.pipelines import pipelines

__all__ = ["Document", "adjoints", "chains", "dags", "documents", "joins", "machines", "pipelines", "trees"]

DocumentStrategy = st.SearchStrategy[Document]


@st.composite
def machines(draw: st.DrawFn) -> Document:
    """Draw a machine with a second memory, or a second processor, or both."""
    processors: list[Document] = [{"name": "gpu", "memory": "device"}]
    if draw(st.booleans()):
        processors[0]["count"] = 2
    if draw(st.booleans()):
        return {"memories": [{"name": "device"}], "processors": processors}
    links = []
    for source, target in (("device", "host"), ("host", "device")):
        link: Document = {"source": source, "target": target}
        bandwidth = draw(st.sampled_from([None, 1, 2, 5]))
        if bandwidth is not None:
            link["bandwidth"] = bandwidth
        channel = draw(st.sampled_from([None, "bus"]))
        if channel is not None:
            link["channel"] = channel
        links.append(link)
    return {"memories": [{"name": "device"}, {"name": "host"}], "processors": processors, "links": links}


# --- chains -----------------------------------------------------------------------------------------------------------


@st.composite
def chains(
    draw: st.DrawFn, *, largest: int = 6, plain: bool = False, exact: bool = False, parameters: bool = False
) -> Document:
    """Draw a `chain` document.

    Parameters
    ----------
    largest : int
        Most stages, repeats counted.
    plain : bool
        Only what every chain algorithm must understand: one memory, nothing in place, each backward reads
        input, output and saved value.
    exact : bool
        Integer times and unscaled sizes, for comparison with exhaustive searches.
    parameters : bool
        Now and then with parameters, optimizer states and updates.
    """
    figures = Figures(draw, exact=exact)
    document = head(draw, "chain")
    count = draw(st.integers(1, largest))
    uniform = draw(st.integers(1, 4)) == 4
    if uniform:
        stages = [_stage(draw, figures, plain=plain) | {"repeat": count}]
    else:
        stages = [_stage(draw, figures, plain=plain) for _ in range(count)]
    document |= {"input_size": figures.size(), "stages": stages}
    figures.seldom(document, "loss", lambda: {"time": figures.time(), "workspace": figures.size()})
    figures.seldom(document, "input_gradient", lambda: False)
    figures.seldom(document, "static_memory", figures.size)
    if not plain:
        figures.seldom(document, "in_place", lambda: True, 6)
        figures.seldom(document, "backward_reads", lambda: draw(READS), 6)
        figures.seldom(document, "machine", lambda: draw(machines()), 10)
    if parameters and draw(st.integers(1, 8)) == 8:
        _parameters(draw, figures, document)
    return document


def _parameters(draw: st.DrawFn, figures: Figures, document: Document) -> None:
    """Give a chain parameters, some of them at another memory where there is one."""
    document["schema"] = "remat.instance/2"
    for stage in document["stages"]:
        stage["parameter_size"] = figures.size(1)
        figures.seldom(stage, "parameter_gradient_size", figures.size)
        figures.seldom(stage, "optimizer_size", figures.size, 2)
        figures.seldom(stage, "update_time", figures.time, 2)
    if draw(st.booleans()):
        document["machine"] = draw(machines())
    names = [memory["name"] for memory in document.get("machine", {"memories": ()})["memories"]]
    if len(names) > 1:
        figures.seldom(document, "parameter_memory", lambda: names[1], 2)
        figures.seldom(document, "optimizer_memory", lambda: names[1], 2)


def _stage(draw: st.DrawFn, figures: Figures, *, plain: bool) -> Document:
    stage: Document = {
        "forward_time": figures.time(),
        "backward_time": figures.time(),
        "output_size": figures.size(),
    }
    figures.seldom(stage, "saved_size", figures.size, 2)
    figures.seldom(stage, "forward_workspace", figures.size)
    figures.seldom(stage, "backward_workspace", lambda: figures.size(most=12))
    figures.seldom(stage, "saving_workspace", figures.size, 6)
    figures.seldom(stage, "saving_forward_time", figures.time, 6)
    figures.seldom(stage, "gradient_size", figures.size, 6)
    if not plain:
        figures.seldom(stage, "backward_reads", lambda: draw(READS), 10)
    figures.seldom(stage, "variants", lambda: _variants(draw, figures, plain=plain), 6)
    return stage


def _variants(draw: st.DrawFn, figures: Figures, *, plain: bool) -> list[Document]:
    """Draw alternatives that trade saved bytes for time, more or less."""
    variants = []
    for _ in range(draw(st.integers(1, 3))):
        variant: Document = {}
        figures.seldom(variant, "saved_size", figures.size, 2)
        figures.seldom(variant, "backward_time", figures.time, 2)
        figures.seldom(variant, "saving_forward_time", figures.time)
        figures.seldom(variant, "saving_workspace", figures.size)
        figures.seldom(variant, "backward_workspace", figures.size)
        if not plain:
            figures.seldom(variant, "backward_reads", lambda: draw(READS), 6)
        variants.append(variant)
    return variants


# --- adjoints ---------------------------------------------------------------------------------------------------------


@st.composite
def adjoints(
    draw: st.DrawFn,
    *,
    largest: int = 8,
    uniform: bool | None = None,
    exact: bool = False,
    taped: bool | None = None,
    machine: bool = False,
) -> Document:
    """Draw an `adjoint` document.

    Parameters
    ----------
    largest : int
        Most steps.
    uniform : bool, optional
        Equal steps (True), steps of their own (False), or either.
    exact : bool
        Integer times and unscaled sizes.
    taped : bool, optional
        With tapes that can be stored (True), without (False), or either.
    machine : bool
        Now and then on a machine of its own, in place of storage.
    """
    figures = Figures(draw, exact=exact)
    document = head(draw, "adjoint")
    count = draw(st.integers(1, largest))
    equal = draw(st.integers(1, 4)) < 4 if uniform is None else uniform
    document["steps"] = count if equal else [_step(draw, figures) for _ in range(count)]
    figures.seldom(document, "forward_time", figures.time, 2)
    figures.seldom(document, "backward_time", figures.time, 2)
    figures.seldom(document, "state_size", figures.size, 2)
    figures.seldom(document, "adjoint_size", figures.size, 3)
    figures.seldom(document, "static_memory", figures.size)
    if taped is None:
        taped = draw(st.integers(1, 6)) == 6
    if taped:
        _tapes(draw, figures, document)
    if machine and draw(st.integers(1, 6)) == 6:
        document["machine"] = draw(machines())
        return document
    figures.seldom(document, "storage", lambda: _storage(draw, figures), 2)
    levels = [level["name"] for level in document.get("storage", ())]
    if levels:
        figures.seldom(document, "initial_state", lambda: draw(st.sampled_from(levels)))
    return document


def _tapes(draw: st.DrawFn, figures: Figures, document: Document) -> None:
    """Give an adjoint tapes, often with separate times, and with different sizes if steps differ."""
    document["tape_size"] = figures.size()
    figures.seldom(document, "tape_time", figures.time, 2)
    for step in document["steps"] if isinstance(document["steps"], list) else ():
        figures.seldom(step, "tape_size", figures.size, 2)


def _step(draw: st.DrawFn, figures: Figures) -> Document:
    step: Document = {}
    figures.seldom(step, "forward_time", figures.time, 2)
    figures.seldom(step, "backward_time", figures.time, 2)
    figures.seldom(step, "state_size", figures.size, 3)
    figures.seldom(step, "adjoint_size", figures.size)
    return step


def _storage(draw: st.DrawFn, figures: Figures) -> list[Document]:
    levels = []
    for index in range(draw(st.sampled_from([1, 1, 2, 2, 3]))):
        level: Document = {"name": f"level{index}"}
        match draw(st.integers(0, 2)):
            case 0:
                level["slots"] = draw(st.integers(0, 4))
            case 1:
                level["capacity"] = figures.size(most=20)
        figures.seldom(level, "write_time", figures.time, 3)
        figures.seldom(level, "read_time", figures.time, 3)
        figures.seldom(level, "bandwidth", lambda: draw(st.integers(1, 5)))
        figures.seldom(level, "channel", lambda: draw(st.sampled_from(["bus", "disk"])), 6)
        levels.append(level)
    return levels


# --- task graphs ------------------------------------------------------------------------------------------------------


@st.composite
def dags(draw: st.DrawFn, *, largest: int = 7, plain: bool = False, exact: bool = False) -> Document:
    """Draw a `dag` document.

    Parameters
    ----------
    largest : int
        Most tasks.
    plain : bool
        One memory, every task required, one producer for each value, listed in topological order.
    exact : bool
        Integer times and unscaled sizes.
    """
    figures = Figures(draw, exact=exact)
    document = head(draw, "dag")
    inputs = [f"i{index}" for index in range(draw(st.integers(0, 2)))]
    sizes = {name: figures.size() for name in inputs}
    tasks: list[Document] = []
    for number in range(draw(st.integers(1, largest))):
        readable = sorted(sizes)
        reads = draw(st.lists(st.sampled_from(readable), unique=True, max_size=3)) if readable else []
        written = [f"v{number}{letter}" for letter in "ab"[: draw(st.sampled_from([1, 1, 1, 2, 0]))]]
        sizes |= {name: figures.size() for name in written}
        tasks.append({"id": f"t{number}", "time": figures.time(), "reads": reads, "writes": written})
        _traits(draw, figures, tasks[-1], plain=plain)
    if not plain:
        _alternatives(draw, figures, tasks)
        if draw(st.integers(1, 4)) == 4:
            tasks = draw(st.permutations(tasks))
    document |= {"values": [{"id": name, "size": size} for name, size in sizes.items()], "tasks": tasks}
    document["inputs"] = inputs
    if inputs:
        some_inputs = st.lists(st.sampled_from(inputs), unique=True)
        figures.seldom(document, "pinned_inputs", lambda: draw(some_inputs), 3)
    if sizes:
        some_values = st.lists(st.sampled_from(sorted(sizes)), unique=True, max_size=2)
        figures.seldom(document, "outputs", lambda: draw(some_values), 2)
    figures.seldom(document, "static_memory", figures.size)
    if not plain:
        figures.seldom(document, "machine", lambda: _machine_of_dag(draw, document), 8)
    return document


def _traits(draw: st.DrawFn, figures: Figures, task: Document, *, plain: bool) -> None:
    figures.seldom(task, "workspace", lambda: figures.size(most=12), 3)
    figures.seldom(task, "in_place", lambda: True, 6)
    figures.seldom(task, "recomputable", lambda: False, 6)
    figures.seldom(task, "once", lambda: True, 6)
    if not plain and not task.get("once"):
        figures.seldom(task, "required", lambda: False, 3)
        figures.seldom(task, "parallel", lambda: {"max": 2, "alpha": 0.5}, 10)


def _alternatives(draw: st.DrawFn, figures: Figures, tasks: list[Document]) -> None:
    """Give some value a second producer, which reads no more than the first one does."""
    makers = [task for task in tasks if task["writes"]]
    if makers and draw(st.integers(1, 3)) == 3:
        first = draw(st.sampled_from(makers))
        second = {"id": "other", "time": figures.time(), "reads": first["reads"][:1], "writes": first["writes"][:1]}
        tasks.append(second | {"required": False})


def _machine_of_dag(draw: st.DrawFn, document: Document) -> Document:
    machine: Document = draw(machines())
    if len(machine["memories"]) > 1 and document["inputs"] and draw(st.booleans()):
        moved = document["inputs"][-1]
        document["inputs"] = [*document["inputs"][:-1], {"value": moved, "memory": "host"}]
    return machine


# --- trees ------------------------------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn, *, largest: int = 9, plain: bool = False, exact: bool = False) -> Document:
    """Draw a `tree` document.

    Parameters
    ----------
    largest : int
        Most nodes.
    plain : bool
        One memory and one processor.
    exact : bool
        Integer times and unscaled sizes.
    """
    figures = Figures(draw, exact=exact)
    document = head(draw, "tree")
    count = draw(st.integers(1, largest))
    shape = draw(st.sampled_from(["any", "any", "chain", "star", "bushy"]))
    parent = [-1]
    for node in range(1, count):
        match shape:
            case "chain":
                parent.append(node - 1)
            case "star":
                parent.append(0)
            case "bushy":
                parent.append((node - 1) // 2)
            case _:
                parent.append(draw(st.integers(0, node - 1)))
    label = draw(st.permutations(range(count)))
    named = [0] * count
    for node, above in enumerate(parent):
        named[label[node]] = -1 if above == -1 else label[above]
    document |= {"parent": named, "output_size": [figures.size() for _ in range(count)]}
    figures.seldom(document, "workspace", lambda: [figures.size() for _ in range(count)], 2)
    figures.seldom(document, "time", lambda: [figures.time() for _ in range(count)], 2)
    figures.seldom(document, "orientation", lambda: "out", 3)
    figures.seldom(document, "static_memory", figures.size)
    if not plain:
        figures.seldom(document, "machine", lambda: draw(machines()), 10)
        figures.seldom(document, "parallel", lambda: {"max": 2, "alpha": 0.5}, 10)
    return document


# --- joins ------------------------------------------------------------------------------------------------------------


@st.composite
def joins(draw: st.DrawFn, *, largest: int = 5, plain: bool = False, exact: bool = False) -> Document:
    """Draw a `join` document: up to three chains, some of them equal.

    Parameters
    ----------
    largest : int
        Most stages of all chains, repeats counted.
    plain : bool
        One memory, nothing in place, each backward reads input, output and saved value.
    exact : bool
        Integer times and unscaled sizes.
    """
    figures = Figures(draw, exact=exact)
    document = head(draw, "join") | {"schema": "remat.instance/3"}
    count = draw(st.sampled_from([1, 2, 2, 2, 3])) if largest > 2 else draw(st.integers(1, largest))
    most = largest // count
    chains = []
    for _ in range(count):
        stages = [_stage(draw, figures, plain=plain) for _ in range(draw(st.integers(1, most)))]
        chains.append({"input_size": figures.size(), "stages": stages})
    if draw(st.integers(1, 3)) == 3:
        chains = [chains[0]] * count
    document["chains"] = chains
    figures.seldom(document, "loss", lambda: {"time": figures.time(), "workspace": figures.size()})
    figures.seldom(document, "input_gradient", lambda: False)
    figures.seldom(document, "static_memory", figures.size)
    if not plain:
        figures.seldom(document, "in_place", lambda: True, 6)
        figures.seldom(document, "backward_reads", lambda: draw(READS), 3)
        figures.seldom(document, "machine", lambda: draw(machines()), 10)
    return document


def documents(kind: str) -> DocumentStrategy:
    """Return the strategy for documents of a kind."""
    match kind:
        case "chain":
            return chains(parameters=True)
        case "adjoint":
            return st.one_of(adjoints(machine=True), adjoints(taped=True, machine=True))
        case "dag":
            return dags()
        case "tree":
            return trees()
        case "pipeline":
            return pipelines(cuts=True, tensor=True)
        case "join":
            return joins()
    raise ValueError(f"there is no kind {kind!r}")
