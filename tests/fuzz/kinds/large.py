"""Instances of ordinary size: hundreds to ten thousand stages, steps, tasks or nodes."""

from tests.fuzz.kinds import adjoints, chains, graphs, pipelines
from tests.fuzz.kinds.machines import machine

COUNTS = (100, 200, 300, 500, 1000, 2000, 5000, 10_000)


def document(draw):
    """Draw a large instance of any kind."""
    count = draw.pick(COUNTS)
    kind, drawn = draw.pick([_chain, _adjoint, _adjoint, _dag, _tree, _pipeline])(draw, count)
    return {"kind": kind, **drawn}


def _chain(draw, count):
    drawn = draw.pick([chains.chain, chains.plain_chain, chains.hosted_chain])(draw)
    stages = [{key: value for key, value in stage.items() if key != "repeat"} for stage in drawn["stages"]]
    drawn["stages"] = [draw.pick(stages) for _ in range(count)]
    return "chain", drawn


def _adjoint(draw, count):
    drawn = draw.pick([adjoints.adjoint, adjoints.levels, adjoints.two_levels, adjoints.tapes, adjoints.one_memory])(
        draw
    )
    steps = drawn["steps"]
    drawn["steps"] = [draw.pick(steps) for _ in range(count)] if isinstance(steps, list) else count
    return "adjoint", drawn


def _dag(draw, count):
    sizes, tasks = {}, []
    for number in range(count):
        reads = draw.some(list(sizes)[-8:], 3)
        sizes[f"v{number}"] = draw.size()
        tasks.append({"id": f"t{number}", "time": draw.time(), "reads": reads, "writes": [f"v{number}"]})
        graphs.add_traits(draw, tasks[-1], True)
    drawn = {"tasks": tasks, "values": [{"id": name, "size": size} for name, size in sizes.items()]}
    draw.seldom(drawn, 2, machine=lambda: machine(draw), outputs=lambda: [f"v{count - 1}"])
    return "dag", drawn


def _tree(draw, count):
    span = draw.pick([1, 3, 1000])
    parent = [-1, *(draw.whole(max(0, node - span), node - 1) for node in range(1, count))]
    drawn = {"parent": parent, "output_size": [draw.size() for _ in parent]}
    draw.seldom(drawn, 2, time=lambda: [draw.time() for _ in parent], machine=lambda: machine(draw))
    return "tree", drawn


def _pipeline(draw, count):
    drawn = draw.pick([pipelines.pipeline, pipelines.even, pipelines.split, pipelines.hosted])(draw)
    if "tokens" in drawn or any("reads" in layer for layer in drawn["layers"]):
        return "pipeline", drawn
    layers = [{key: value for key, value in layer.items() if key != "repeat"} for layer in drawn["layers"]]
    drawn["layers"] = [draw.pick(layers) | {"repeat": draw.whole(2, 8)} for _ in range(4)]
    drawn["micro_batches"] = count // 40 + 1
    return "pipeline", drawn
