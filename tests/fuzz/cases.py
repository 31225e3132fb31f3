"""Cases: an instance with the solves to be compared, drawn from a seed or read from a file."""

import copy
import enum
import json
import typing
from dataclasses import asdict, dataclass, field, replace

import remat
from remat.plugin import registry
from tests.fuzz import drawing
from tests.oracles import lowering

WORK = {
    "adjoint-best": {"iterations": 10, "moves": 20_000, "window": 1000, "work": 0.001},
    "chain-best": {"iterations": 50, "states": 2_000},
    "chain-exact": {"states": 5_000},
    "dag-auto": {"iterations": 20},
    "dag-order-exact": {"states": 20_000},
    "dtr": {"limits": 8},
    "knapsack-dp": {"levels": 4},
    "knapsack-greedy": {"levels": 4},
    "knapsack-ilp": {"levels": 2},
    "kusumoto-approx": {"budgets": 4},
    "kusumoto-exact": {"budgets": 4},
    "min-cut": {"bans": 4},
    "offload-dp": {"slots": 8},
    "offload-exact": {"copies": 1, "work": 0.002},
    "poet": {"work": 0.02},
    "pipe-exact": {"work": 0.05},
    "pipe-plan": {"moves": 300},
    "pipe-search": {"moves": 300},
    "dag-exact": {"states": 20_000},
    "dag-offload-best": {"iterations": 10},
    "madpipe": {"work": 0.05},
    "optpipe": {"work": 0.05},
    "pipeline-ilp": {"work": 0.05},
    "placement-bound": {"work": 0.05, "moves": 200},
    "placement-replicated": {"moves": 200},
    "pofo": {"slots": 8},
    "tarnawski-dp": {"work": 0.05},
    "tarnawski-ip": {"work": 0.05, "bound_work": 0.05, "moves": 200},
    "tarnawski-latency": {"work": 0.05, "moves": 200},
    "tessel": {"work": 0.05},
    "remat-offload-best": {"iterations": 10},
    "swapadvisor": {"iterations": 20},
    "weight-offload": {"evaluations": 20},
}
"""Options that bound the work where the default would take long even here; tiny instances bound the rest."""

DRAWN = {
    "fixed": {"checkpoints": [(), (1,), (0, 2), "sqrt"]},
    "auto-perf-maxing": {"count": [0, 1, 3]},
    "layers": {"count": [0, 1, 3]},
    "periodic": {"segments": [1, 2, 3]},
    "poet": {"stages": [0, 1, 4]},
    "rotor": {"gap": [0.02, 0.3]},
    "rotor-float": {"slots": [4, 20]},
    "tflms": {"threshold": [1, 2], "ahead": [0, 1, 3]},
    "two-level": {"period": [1, 2, 3]},
    "two-level-async": {"period": [1, 2, 3]},
    "vdnn-all": {"stages": ["conv", "conv,pool"]},
    "superneurons": {"stages": ["conv", "pool"]},
}
"""Choices for options that are neither flags nor have listed values, which are drawn as their models have them."""

SKIPPED = 3
"""One algorithm in so many is left out of a case: for as many solves there are more instances then."""

SECONDS = {"auto": 5.0, "dag-auto": 5.0}
"""Time limits for what has no other end; answers that met theirs are not asked to be the same twice."""


@dataclass(frozen=True)
class Solve:
    """What is asked of one algorithm."""

    algorithm: str
    budget: object = None
    options: dict = field(default_factory=dict)
    seed: int = 0
    twice: bool = False
    time_limit: float | None = None

    def arguments(self):
        """Keyword arguments of `remat.solve`."""
        chosen = {"algorithm": self.algorithm, "budget": self.budget, "options": self.options, "seed": self.seed}
        return chosen | ({} if self.time_limit is None else {"time_limit": self.time_limit})


@dataclass(frozen=True)
class Case:
    """An instance, and the solves whose answers must agree."""

    seed: int
    document: dict
    solves: tuple = ()

    def to_document(self):
        return asdict(self)

    @classmethod
    def read(cls, text):
        found = json.loads(text)
        return cls(found["seed"], found["document"], tuple(Solve(**solve) for solve in found["solves"]))

    def only(self, algorithms):
        """Return the case with the solves of these algorithms."""
        return replace(self, solves=tuple(solve for solve in self.solves if solve.algorithm in algorithms))


def draw_case(seed, form=None):
    """Draw the case of a seed."""
    for attempt in range(100):
        drawn = drawing.document(f"{seed}/{attempt}", form)
        try:
            remat.load(copy.deepcopy(drawn))
        except remat.InstanceError:
            continue  # a graph in which some task can never run, sizes beyond 2^62
        return Case(seed, drawn, tuple(_solves(drawing.Draw(f"{seed}/solves"), drawn)))
    raise RuntimeError(f"seed {seed}: a hundred instances, and none can be read")


def _solves(draw, drawn):
    draw.scale = _scale_of(drawn)
    budgets = [draw_budget(draw, drawn) for _ in range(draw.pick([1, 1, 2]))]
    entries = registry.algorithms(drawn["kind"], available=True)
    if _is_large(drawn):
        for entry in draw.some(list(entries), MOST_OF_LARGE):
            yield Solve(entry.name, budgets[0], {}, 0, time_limit=SHORT)
        yield Solve("auto", budgets[0], {}, 0, time_limit=SHORT)
        return
    for budget in budgets:
        for entry in entries:
            if draw.chance(SKIPPED):
                continue
            options = WORK.get(entry.name, {}) | (_options(draw, entry) if draw.chance(3) else {})
            limit = SECONDS.get(entry.name)
            yield Solve(entry.name, budget, options, draw.whole(0, 3), draw.chance(25), limit)
        yield Solve("auto", budget, {}, 0, draw.chance(25), SECONDS["auto"])


def _options(draw, entry):
    """Draw one of an algorithm's flags and listed choices, or of `DRAWN`."""
    model = entry.load_options()
    choices = {name: list(values) for name, values in DRAWN.get(entry.name, {}).items()}
    for name, about in (model.model_fields if model else {}).items():
        if about.annotation is bool:
            choices[name] = [False, True]
        elif typing.get_origin(about.annotation) is typing.Literal:
            choices[name] = list(typing.get_args(about.annotation))
        elif isinstance(about.annotation, type) and issubclass(about.annotation, enum.Enum):
            choices[name] = [member.value for member in about.annotation]
    if not choices:
        return {}
    name = draw.pick(sorted(choices))
    return {name: draw.pick(choices[name])}


LARGE, MOST_OF_LARGE, SHORT = 100, 5, 1.0
"""From so many tasks on an instance is a large one, of which so many algorithms are asked, for so many seconds."""


def _is_large(drawn):
    count = sum(stage.get("repeat", 1) for stage in drawn.get("stages", ())) if "stages" in drawn else 0
    steps = drawn.get("steps", 0)
    count = max(count, steps if isinstance(steps, int) else len(steps), len(drawn.get("tasks", ())))
    layers = sum(layer.get("repeat", 1) for layer in drawn.get("layers", ()))
    return max(count, len(drawn.get("parent", ())), layers * drawn.get("micro_batches", 0)) >= LARGE


# --- budgets ----------------------------------------------------------------------------------------------------------


def _scale_of(drawn):
    """The scale of the sizes, as far as it shows: tied budgets lie on it."""
    sizes = [size for size in lowering.lower(plain(drawn)).values.values() if size]
    return next((scale for scale in sorted(set(drawing.SIZES), reverse=True) if all(s % scale == 0 for s in sizes)), 1)


def draw_budget(draw, drawn):
    """Draw a budget for the first memory (None: unbounded), now and then for another one too."""
    if draw.chance(10):
        return None
    if drawn["kind"] == "pipeline":
        return _of_devices(draw, drawn)
    least, most = _range(drawn)
    # Tight ones rather, both ends, and whole numbers of the scale above the least: there lie the ties.
    share = least + round((most - least) * draw.random.random() ** 2)
    tied = least + draw.whole(0, 8) * draw.scale
    own = max(0, draw.pick([least - 1, least, share, share, share, tied, tied, tied, most]))
    others = [level["name"] for level in drawn.get("storage", [])][1:] or drawing.memories_of(drawn)[1:]
    if others and draw.chance(4):
        return {"": own, draw.pick(others): draw.whole(0, 6) * draw.scale}
    return own


def _of_devices(draw, drawn):
    """Draw a budget for all devices, or one for a certain device beside it."""
    graph = lowering.lower(plain(drawn))
    total, devices = sum(graph.values.values()), sum(one.get("count", 1) for one in drawn["cluster"]["devices"])
    own = round(total / devices * draw.pick([0.1, 0.3, 0.5, 0.7, 1, 1.5]))
    return own


def _range(drawn):
    """Roughly the least that the budgeted memory must hold, and what it holds if nothing is ever dropped."""
    graph = lowering.lower(plain(drawn))
    size = graph.values
    if "storage" in drawn:
        return 0, sum(bytes_ for value, bytes_ in size.items() if value.startswith("x"))
    alone = [_alone(task, size) for task in graph.tasks.values() if task.required or task.once]
    most = sum(size.values()) + max((task.workspace for task in graph.tasks.values()), default=0)
    return graph.static + max(alone, default=0), graph.static + most


def _alone(task, size):
    read, written = (sum(size[value] for value in set(values)) for values in (task.reads, task.writes))
    return (max(read, written) if task.in_place else read + written) + task.workspace


# --- what the oracles are given ---------------------------------------------------------------------------------------


def plain(drawn):
    """Write out the defaults of an adjoint, which the oracles do not know."""
    defaults = {"forward_time": 1, "backward_time": 1, "state_size": 1} if drawn["kind"] == "adjoint" else {}
    return defaults | drawn
