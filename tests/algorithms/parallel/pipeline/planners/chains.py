"""Chains of layers for the planners' tests: drawn, as lines of equal devices, and as instances."""

from itertools import accumulate, pairwise

from hypothesis import strategies as st

from remat_algorithms.parallel.pipeline.planners.layer_sums import Hop, Line, Position, Row
from remat_algorithms.parallel.pipeline.planners.simulation import Pipe, Way, makespan, one_forward_one_backward


@st.composite
def points(draw, most=6, least_time=0):
    """Draw a chain, stages, micro-batches, and a memory that may be too small."""
    count = draw(st.integers(1, most))

    def listed(largest, length=count, least=0):
        return draw(st.lists(st.integers(least, largest), min_size=length, max_size=length))

    point = {
        "f": listed(9, least=least_time),
        "b": listed(18, least=least_time),
        "activation": listed(9),
        "weights": listed(12),
        "transfer": listed(5, count - 1),
        "p": draw(st.integers(1, min(4, count))),
        "m": draw(st.integers(1, 5)),
    }
    most = sum(point["weights"]) + 4 * sum(point["activation"])
    return point | {"memory": draw(st.integers(0, max(1, most)))}


def work_of(point):
    """Return the time of each layer, there and back."""
    return [f + b for f, b in zip(point["f"], point["b"], strict=True)]


def line_of(point, memory=None, count=None):
    """Return equal devices for a chain."""
    row = Row.of(point["activation"], point["weights"])
    return Line.of(row, Position.of(work_of(point), memory), Hop.of(point["transfer"]), count or point["p"], point["m"])


def pipe_of(point, cuts):
    """Return the stages of some cuts, a device each."""
    forward, backward = ([0, *accumulate(point[key])] for key in "fb")
    count = len(cuts) - 1
    return Pipe(
        place=tuple(range(count)),
        devices=count,
        batches=point["m"],
        forward=tuple(forward[end] - forward[first] for first, end in pairwise(cuts)),
        backward=tuple(backward[end] - backward[first] for first, end in pairwise(cuts)),
        ways=(Way(0, 0, 0, 0), *(Hop.of(point["transfer"]).at(cut) for cut in cuts[1:-1])),
        previous=tuple(range(-1, count - 1)),
    )


def judge_of(point):
    """Return the judge of cuts by 1F1B."""

    def judge(cuts):
        pipe = pipe_of(point, cuts)
        return makespan(pipe, one_forward_one_backward(pipe))

    return judge


def instance_of(point, devices, memory=None):
    """Return the instance of a chain: transfers have a size at a bandwidth of 1, or none where memory counts."""
    layers = [
        {"forward_time": f, "backward_time": b, "saved_size": a, "parameter_size": w, "parameter_gradient_size": 0}
        | ({} if memory is not None else {"output_size": size})
        for f, b, a, w, size in zip(
            point["f"], point["b"], point["activation"], point["weights"], [*point["transfer"], 0], strict=True
        )
    ]
    named = devices if isinstance(devices, list) else [{"name": "d", "count": devices}]
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "layers": layers,
        "micro_batches": point["m"],
        "cluster": {
            "devices": [device | ({} if memory is None else {"memory": memory}) for device in named],
            "levels": [{"bandwidth": 1}],
        },
    }


def cuts_of(result):
    """Return the cuts of a result whose stages are consecutive."""
    stages = result.orders.stages
    return [0, *(stage.layers[-1] + 1 for stage in stages)]
