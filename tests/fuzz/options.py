"""Options of algorithms: those that bound the work, and those that are drawn."""

import enum
import typing

WORK = {
    "adjoint-best": {"iterations": 5, "moves": 5_000, "window": 1000, "work": 0.001},
    "chain-best": {"iterations": 20, "states": 2_000},
    "chain-exact": {"states": 5_000},
    "dag-auto": {"iterations": 10},
    "dag-exact": {"states": 20_000},
    "dag-offload-best": {"iterations": 5},
    "dag-order-exact": {"states": 20_000},
    "dtr": {"limits": 8},
    "knapsack-dp": {"levels": 4},
    "knapsack-greedy": {"levels": 4},
    "knapsack-ilp": {"levels": 2},
    "kusumoto-approx": {"budgets": 4},
    "kusumoto-exact": {"budgets": 4},
    "madpipe": {"work": 0.02},
    "min-cut": {"bans": 4},
    "offload-dp": {"slots": 8},
    "offload-exact": {"copies": 1, "work": 0.002},
    "offmate": {"evaluations": 20},
    "optpipe": {"work": 0.02},
    "pipe-exact": {"work": 0.02},
    "pipe-plan": {"moves": 100},
    "pipe-search": {"moves": 200},
    "pipeline-ilp": {"work": 0.02},
    "placement-bound": {"work": 0.02, "moves": 200},
    "placement-replicated": {"moves": 200},
    "poet": {"work": 0.02},
    "pofo": {"slots": 8},
    "remat-offload-best": {"iterations": 5},
    "swapadvisor": {"iterations": 10},
    "tarnawski-dp": {"work": 0.02},
    "tarnawski-ip": {"work": 0.02, "bound_work": 0.02, "moves": 200},
    "tarnawski-latency": {"work": 0.02, "moves": 200},
    "tessel": {"work": 0.02},
    "weight-offload": {"evaluations": 20},
}
"""Options that bound the work of algorithms whose default takes long even on tiny instances."""

CHOICES = {
    "async-multistage": {"interval": [1, 2, 3]},
    "fixed": {"checkpoints": [(), (1,), (0, 2), "sqrt"]},
    "auto-perf-maxing": {"count": [0, 1, 3]},
    "interleaved-1f1b": {"chunks": [1, 2]},
    "layers": {"count": [0, 1, 3]},
    "periodic": {"segments": [1, 2, 3]},
    "poet": {"stages": [0, 1, 4]},
    "rotor": {"gap": [0.02, 0.3]},
    "rotor-float": {"slots": [4, 20]},
    "superneurons": {"stages": ["conv", "pool"]},
    "tflms": {"threshold": [1, 2], "ahead": [0, 1, 3]},
    "two-level": {"period": [1, 2, 3]},
    "two-level-async": {"period": [1, 2, 3]},
    "vdnn-all": {"stages": ["conv", "conv,pool"]},
}
"""Values for options that are not flags and have no listed values."""


def draw_options(draw, entry):
    """Draw one of an algorithm's flags, of its listed values, or of `CHOICES`."""
    model = entry.load_options()
    choices = {name: list(values) for name, values in CHOICES.get(entry.name, {}).items()}
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
