"""Small instances with several processors from a seed, solved by many algorithms whose claims must agree."""

import itertools
import json
import random
import warnings
from dataclasses import dataclass, field
from fractions import Fraction

import remat
from remat.plugin import registry
from remat.plugin.proposal import ALL_SCHEDULES

WORK = {
    "adapipe": {"judged": 4},
    "dag-auto": {"iterations": 10},
    "dag-exact": {"states": 1_000},
    "dag-offload-best": {"iterations": 3},
    "dag-order-exact": {"states": 2_000},
    "madpipe": {"work": 0.005},
    "offload-exact": {"copies": 1, "work": 0.002},
    "optpipe": {"work": 0.005},
    "pipe-exact": {"moves": 20, "work": 0.02},
    "pipe-plan": {"moves": 20, "zoo": False},
    "pipe-search": {"moves": 40},
    "pipeline-ilp": {"work": 0.005},
    "placement-bound": {"moves": 500, "work": 0.05},
    "placement-replicated": {"moves": 500, "nodes": 20},
    "poet": {"work": 0.02},
    "swapadvisor": {"iterations": 10},
    "tarnawski-ip": {"moves": 500, "work": 0.05, "bound_work": 0.05},
    "tarnawski-latency": {"moves": 40, "work": 0.05},
    "tessel": {"work": 0.005, "placement": "chain"},
}
"""Options that bound the work."""

TOLERANCE = 1e-9


class Draw(random.Random):
    """A source of figures."""

    def odds(self, count):
        """Once in `count`."""
        return self.randrange(count) == 0

    def some(self, choices, most):
        return self.sample(list(choices), min(len(choices), self.randint(0, most)))

    def size(self, most=6):
        return self.randint(0, most)

    def time(self, most=8):
        return self.randint(0, most)


# --- graphs -----------------------------------------------------------------------------------------------------------


def machine(draw, *, joined=False, plain=False):
    """Draw memories, processors in some of them, and links.

    `joined`: all memories can reach each other; `plain`: what most algorithms know.
    """
    names = draw.sample(["a", "b", "c", "host"], draw.choice([1, 2, 2, 3, 3, 4]))
    homes = names if draw.odds(3) else names[: draw.randint(1, len(names))]
    memories = [{"name": name} for name in names]
    for memory in memories:
        if not plain and draw.odds(6):
            memory["static"] = draw.size(3)
        if draw.odds(4):
            memory["capacity"] = draw.size(30)
    processors = []
    for number, home in enumerate([*homes, *draw.some(homes, 2)]):
        processors.append({"name": f"p{number}", "memory": home})
        if number and draw.odds(3):
            processors[-1]["speed"] = draw.choice([0.5, 0.25, 0.3])
    if not plain and draw.odds(3):
        for processor in processors:
            processor["type"] = draw.choice(["x", "y"])
    form = draw.choice(["all", "all", "star", "star", "row", "some"]) if not joined else draw.choice(["all", "star"])
    pairs = {
        "all": [(one, other) for one in names for other in names if one != other],
        "star": [pair for other in names[1:] for pair in ((names[0], other), (other, names[0]))],
        "row": [pair for one, other in itertools.pairwise(names) for pair in ((one, other), (other, one))],
    }
    pairs["some"] = draw.some(pairs["all"], 6)
    links = []
    for source, target in pairs[form]:
        link = {"source": source, "target": target}
        if draw.odds(2):
            link["bandwidth"] = draw.choice([1, 2, 4, 0.5, 3])
        if draw.odds(3):
            link["latency"] = draw.time(3)
        if not plain and draw.odds(5):
            link["delay"] = draw.time(3)
        if draw.odds(4):
            link["channel"] = draw.choice(["bus", processors[0]["name"]])
        links.append(link)
    return {"memories": memories, "processors": processors, **({"links": links} if links else {})}


def graph(seed):
    """Draw a task graph on several devices, a fifth of them as streams."""
    draw = Draw(f"graph {seed}")
    stream = draw.odds(5)
    plain = not stream and draw.odds(2)
    drawn = {"schema": "remat.instance/3", "kind": "dag", "units": {"time": "unit", "memory": "unit"}}
    drawn["machine"] = machine(draw, joined=stream, plain=plain)
    names = [memory["name"] for memory in drawn["machine"]["memories"]]
    processors = drawn["machine"]["processors"]
    types = sorted({processor["type"] for processor in processors if "type" in processor})
    sizes, inputs, pinned, outputs = {}, [], [], []
    for number in range(draw.randint(0, 3)):
        value = f"i{number}"
        sizes[value] = draw.size()
        place = draw.choice(["first", "memory"] if plain else ["first", "any", "any", "memory"])
        if place == "any":
            inputs.append({"value": value, "memory": "any"} | ({"copies": draw.randint(1, 3)} if draw.odds(2) else {}))
            continue
        inputs.append(value if place == "first" else {"value": value, "memory": draw.choice(names)})
        if stream or draw.odds(3):
            pinned.append(value)
    tasks = []
    for number in range(draw.randint(1, 6)):
        reads = draw.some(list(sizes)[-6:], 3)
        written = [f"v{number}{letter}" for letter in "ab"[: draw.choice([1, 1, 1, 2, 0])]]
        sizes |= {value: draw.size() for value in written}
        task = {"id": f"t{number}", "time": draw.time(), "reads": reads, "writes": written}
        if types and draw.odds(3):
            task["time"] = {name: draw.time() for name in types}
        if draw.odds(3):
            task["workspace"] = draw.size(8)
        if draw.odds(5):
            task["in_place"] = True
        if not plain and draw.odds(6):
            task["on"] = draw.sample([processor["name"] for processor in processors], 1)
        if not stream and draw.odds(8) and not isinstance(task["time"], dict):
            task["parallel"] = {"max": draw.randint(2, 3), "alpha": draw.choice([1, 0.5])}
        if draw.odds(8):
            task[draw.choice(["once", "required"])] = False
        tasks.append(task)
    if not stream and draw.odds(6):  # times that floats round
        for task in tasks:
            if isinstance(task["time"], int) and task["time"]:
                task["time"] += 2**52
    made = [value for task in tasks for value in task["writes"]]
    if made and draw.odds(5):
        first = draw.choice([task for task in tasks if task["writes"]])
        other = {"id": "other", "time": draw.time(), "reads": first["reads"][:1], "writes": first["writes"][:1]}
        tasks.append(other | {"required": draw.odds(2)})
    if not stream:
        anywhere = {one["value"] for one in inputs if isinstance(one, dict) and one["memory"] == "any"}
        wanted = draw.some([value for value in sizes if value not in anywhere], 2)
        outputs = [{"value": value, "memory": draw.choice(names)} if draw.odds(2) else value for value in wanted]
    drawn |= {"tasks": tasks, "values": [{"id": value, "size": size} for value, size in sizes.items()]}
    drawn |= {"inputs": inputs, "pinned_inputs": pinned, "outputs": outputs}
    return drawn | ({"stream": draw.randint(1, 3)} if stream else {})


# --- trees ------------------------------------------------------------------------------------------------------------


def tree(seed):
    """Draw a tree on several processors."""
    draw = Draw(f"tree {seed}")
    count = draw.randint(1, 9)
    drawn = {
        "schema": "remat.instance/3",
        "kind": "tree",
        "units": {"time": "unit", "memory": "unit"},
        "parent": [-1, *(draw.randrange(node) for node in range(1, count))],
        "output_size": [draw.size() for _ in range(count)],
        "time": [draw.time() for _ in range(count)],
    }
    if draw.odds(2):
        drawn["workspace"] = [draw.size() for _ in range(count)]
    if draw.odds(2):
        drawn["orientation"] = "out"
    if draw.odds(3):
        drawn["parallel"] = {"max": draw.randint(2, 4), "alpha": draw.choice([1, 0.5])}
    if draw.odds(4):
        drawn["static_memory"] = draw.size()
    drawn["machine"] = machine(draw, plain=True)
    if draw.odds(2):
        drawn["machine"] = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m", "count": 3}]}
    return drawn


# --- pipelines --------------------------------------------------------------------------------------------------------


def pipeline(seed):
    """Draw a pipeline: modes of transfer, hops, copies, halves, hosts, ranks, exchanges, streams."""
    draw = Draw(f"pipeline {seed}")
    devices = draw.choice([1, 2, 2, 2, 3, 4])
    split, types = draw.odds(3), ["x", "y"] if draw.odds(5) and devices > 1 else []
    closing = draw.odds(4)
    layers = [_layer(draw, split, types, closing) for _ in range(draw.choice([2, 3, 4, 4, 5, 6, 8]))]
    if draw.odds(5):
        layers = [layers[0] | {"repeat": len(layers)}]
    cluster = {"devices": [{"name": "g", "count": devices}]}
    if types:
        cluster["devices"] = [{"name": f"g{k}", "type": types[k % 2]} for k in range(devices)]
    if devices > 1 and draw.odds(2):
        level = {}
        for key, choices in (("bandwidth", [1, 2, 3]), ("latency", [0, 1, 2]), ("delay", [1, 2])):
            if draw.odds(2):
                level[key] = draw.choice(choices)
        if level:
            cluster["levels"] = [level]
    stream = not closing and draw.odds(6)
    hosted = not stream and draw.odds(2)
    if not (closing or stream or hosted) and draw.odds(2):
        cluster["transfers"] = draw.choice(["overlap", "blocking", "rendezvous", "grouped"])
    if hosted:
        cluster["host"] = {"bandwidth": draw.choice([1, 3, 10])}
    drawn = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "layers": layers,
        "micro_batches": draw.choice([1, 2, 3, 4, 4]),
        "cluster": cluster,
    }
    if not stream and draw.odds(4):
        drawn["copies"] = 2
        if closing:
            drawn["exchange"] = "ring"
    if stream:
        drawn["weights"] = draw.choice(["stash", "double", "single", "predicted"])
        if drawn["weights"] == "double":
            drawn["update_every"] = 2 * devices
    if draw.odds(5):
        drawn["backward_reads"] = draw.some(["input", "output", "saved"], 3)
    if devices == 4 and closing:
        drawn["sharding"] = {"data": 2, "zero": draw.randint(0, 3)}
    return drawn


def _layer(draw, split, types, closing):
    def time(most):
        return {name: draw.time(most) for name in types} if types and draw.odds(2) else draw.time(most)

    layer = {"forward_time": time(6), "backward_time": time(8), "saved_size": draw.size(), "output_size": draw.size(3)}
    if split:
        layer |= {"weight_time": draw.randint(1, 4), "weight_saved_size": draw.size(4)}
    if draw.odds(2):
        layer["parameter_size"] = draw.size(3)
    if draw.odds(4):
        layer |= {"forward_workspace": draw.size(3), "backward_workspace": draw.size(3)}
    if closing and draw.odds(3):
        layer["update_time"] = draw.time(3)
    if draw.odds(6):
        layer["optimizer_size"] = draw.size(3)
    return layer


# --- solving ----------------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """The results of all solves of one instance.

    Attributes
    ----------
    found : dict of str to number
        The makespan of each algorithm that has a schedule.
    solves : int
    refused : int
    wrong : list of str
    """

    found: dict = field(default_factory=dict)
    solves: int = 0
    refused: int = 0
    wrong: list = field(default_factory=list)


def loads(document):
    """Whether a drawn document is an instance."""
    try:
        remat.load(json.loads(json.dumps(document)))
    except remat.RematError:
        return False
    return True


def budget_of(seed, document):
    """Draw a budget: none, or bytes from very tight to loose."""
    draw = Draw(f"budget {seed}")
    if draw.odds(4):
        return None
    total = 12 if document["kind"] == "pipeline" else 4
    return draw.randint(1, 5 * total) if draw.odds(3) else draw.randint(total // 2, 3 * total)


def solve_all(document, budget, names=None):
    """Solve with all (or the named) algorithms, and compare their claims."""
    verdict, results = Verdict(), {}
    for entry in registry.algorithms(document["kind"], available=True):
        if names is not None and entry.name not in names:
            continue
        verdict.solves += 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
            try:
                result = _solve(document, entry.name, budget)
            except remat.RematError:
                verdict.refused += 1
                continue
            except Exception as error:
                verdict.wrong.append(f"{entry.name}: {type(error).__name__}: {error}")
                continue
        results[entry.name] = result
        if result.makespan is not None:
            verdict.found[entry.name] = result.makespan
    best = min(verdict.found.values(), default=None)
    for name, result in results.items():
        verdict.wrong += [f"{name}: {text}" for text in _claims(result, best)]
        least = result.least_budget
        if result.makespan is None and least is not None and least.sufficient:
            verdict.wrong += [f"{name}: {text}" for text in _again(document, budget, result)]
    return verdict


def _again(document, budget, result):
    """Solve with the budget that the result reports as sufficient."""
    least = result.least_budget
    more = {result.machine.memories[least.memory].name: least.size} | ({} if budget is None else {"": budget})
    if document["kind"] == "pipeline":  # a bare budget is that of every device
        more = least.size
    elif budget is not None and result.machine.processors[0].memory == least.memory:
        more = {"": least.size}
    try:
        found = _solve(document, result.algorithm, more)
    except Exception as error:
        yield f"{type(error).__name__} with {more}, which is reported to be enough: {error}"
        return
    if found.makespan is None:
        yield f"no schedule with {more}, which is reported to be enough"


def _solve(document, algorithm, budget):
    return remat.solve(
        json.loads(json.dumps(document)),
        algorithm=algorithm,
        budget=budget,
        options=WORK.get(algorithm, {}),
        time_limit=20,
    )


def _claims(result, best):
    """Yield a result's claims that another schedule refutes."""
    if best is None:
        return
    if result.status == "infeasible" or (result.makespan is None and result.scope == ALL_SCHEDULES):
        yield f"infeasible, and there is a schedule of {best}"
    if result.status == "optimal" and not _at_most(result.makespan, best):
        yield f"optimal with {result.makespan}, and there is a schedule of {best}"
    if not _at_most(result.lower_bound, best):
        yield f"lower bound {result.lower_bound}, and there is a schedule of {best}"


def _at_most(one, other):
    if isinstance(one, int) and isinstance(other, int):
        return one <= other
    return Fraction(one) <= Fraction(other) * (1 + Fraction(TOLERANCE))
