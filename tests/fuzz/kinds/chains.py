"""Chains and joins of chains."""

from tests.fuzz.kinds.figures import READS
from tests.fuzz.kinds.machines import machine, memories_of


def chain(draw):
    """Draw a chain: variants, workspaces, in-place steps, individual backward reads, parameters."""
    simple, count = draw.chance(3), draw.pick([1, 2, 2, 3, 3, 3, 4, 4, 5])
    drawn = {"input_size": draw.size(), "stages": [_stage(draw, simple) for _ in range(count)]}
    if draw.chance(6):
        drawn["stages"] = [drawn["stages"][0] | {"repeat": count}]
    _ends(draw, drawn)
    draw.seldom(drawn, 2, machine=lambda: machine(draw))
    if draw.chance(4):
        _add_parameters(draw, drawn)
    if not simple:
        draw.seldom(drawn, 6, in_place=lambda: True, backward_reads=lambda: draw.some(READS, 3))
    return drawn


def plain_chain(draw):
    """Draw a chain without variants and parameters, on one device or with a host."""
    drawn = {"input_size": draw.size(), "stages": [_stage(draw, True) for _ in range(draw.pick([1, 2, 3, 4, 5, 6]))]}
    _ends(draw, drawn)
    draw.seldom(drawn, 3, machine=lambda: machine(draw))
    return drawn


def hosted_chain(draw):
    """Draw a chain with named stages and a host to which values can be swapped."""
    drawn = {"input_size": draw.size(), "stages": [_stage(draw, not draw.chance(4)) for _ in range(draw.whole(2, 5))]}
    names = draw.pick([["conv", "pool", "conv 3×3"], ["pool", "conv"], ["conv"]])
    drawn["stages"] = [stage | {"name": draw.pick(names)} for stage in drawn["stages"]]
    drawn["stages"][0]["name"] = "conv 1"
    drawn["machine"] = machine(draw, draw.pick(["host", "host", "disk"]))
    _ends(draw, drawn)
    return drawn


def parameters(draw):
    """Draw a chain whose parameters or optimizer states are kept at a host, which may update them."""
    drawn = {"input_size": draw.size(), "stages": [_stage(draw, True) for _ in range(draw.whole(1, 4))]}
    _add_parameters(draw, drawn, most=5)
    drawn["stages"][0]["parameter_size"] = draw.size() or 1
    drawn["machine"] = machine(draw, draw.pick(["host"] * 6 + ["disk", "both", "apart"]))
    device, home = drawn["machine"]["memories"][0]["name"], drawn["machine"]["memories"][1]["name"]
    for key in ("parameter_memory", "optimizer_memory"):
        drawn.pop(key, None)
    draw.seldom(drawn, 2, parameter_memory=lambda: draw.pick([home, home, device]))
    if not draw.chance(3):
        drawn["optimizer_memory"] = draw.pick([home, home, home, device])
    if draw.chance(4):
        drawn["parameter_memory"] = drawn["optimizer_memory"] = "any"
    if all(one["memory"] != home for one in drawn["machine"]["processors"]) and not draw.chance(3):
        drawn["machine"]["processors"].append({"name": "cpu", "memory": home, "speed": draw.pick([1, 0.5, 0.0625])})
    return drawn


def ranks(draw):
    """Draw a chain with parameters that equal ranks share, that lie anywhere, or whose steps follow without end."""
    drawn = {"input_size": draw.size(), "stages": [_stage(draw, True) for _ in range(draw.whole(1, 3))]}
    _add_parameters(draw, drawn)
    drawn["stages"][0]["parameter_size"] = draw.size() or 1
    if draw.chance(2):
        drawn["sharding"] = {"data": draw.whole(1, 4)}
        if drawn["sharding"]["data"] > 1:
            drawn["sharding"]["zero"] = draw.whole(0, 3)
            draw.seldom(drawn["sharding"], 3, bucket=draw.size)
        if "machine" in drawn:
            link = {"source": drawn["machine"]["processors"][0]["memory"]}
            link["target"] = link["source"]
            draw.seldom(link, 2, bandwidth=lambda: draw.pick([1, 2, 0.5]), latency=draw.time)
            drawn["machine"]["links"] = [*drawn["machine"].get("links", []), link]
    if "machine" in drawn and len(memories_of(drawn)) > 1:
        draw.seldom(drawn, 3, parameter_memory=lambda: "any", optimizer_memory=lambda: "any")
    draw.seldom(drawn, 5, staleness=lambda: draw.whole(0, 1))
    return drawn


def join(draw):
    """Draw a join: up to three chains that meet in one loss, some of them equal."""
    simple, count = draw.chance(2), draw.pick([1, 2, 2, 2, 3])
    most = 5 // count
    chains = [
        {"input_size": draw.size(), "stages": [_stage(draw, simple) for _ in range(draw.whole(1, most))]}
        for _ in range(count)
    ]
    drawn = {"chains": [chains[0]] * count if draw.chance(3) else chains}
    _ends(draw, drawn)
    if not simple:
        draw.seldom(drawn, 6, in_place=lambda: True, backward_reads=lambda: draw.some(READS, 3))
        draw.seldom(drawn, 5, machine=lambda: machine(draw))
    return drawn


def _ends(draw, drawn):
    draw.seldom(drawn, 4, loss=lambda: {"time": draw.time(), "workspace": draw.size()}, input_gradient=lambda: False)


def _stage(draw, simple):
    stage = {"forward_time": draw.time(), "backward_time": draw.time(), "output_size": draw.size()}
    draw.seldom(stage, 2, saved_size=draw.size)
    draw.seldom(stage, 4, forward_workspace=draw.size, backward_workspace=lambda: draw.size(12))
    draw.seldom(stage, 6, saving_workspace=draw.size, saving_forward_time=draw.time, gradient_size=draw.size)
    if not simple:
        draw.seldom(stage, 10, backward_reads=lambda: draw.some(READS, 3))
        draw.seldom(stage, 6, variants=lambda: [_variant(draw) for _ in range(draw.whole(1, 3))])
    return stage


def _variant(draw):
    variant = {}
    draw.seldom(variant, 2, saved_size=draw.size, backward_time=draw.time)
    draw.seldom(variant, 4, saving_forward_time=draw.time, saving_workspace=draw.size, backward_workspace=draw.size)
    draw.seldom(variant, 8, backward_reads=lambda: draw.some(READS, 3))
    return variant


def _add_parameters(draw, drawn, most=6):
    for stage in drawn["stages"]:
        draw.seldom(stage, 2, parameter_size=lambda: draw.size(most), optimizer_size=lambda: draw.size(most))
        draw.seldom(stage, 3, update_time=draw.time, parameter_gradient_size=draw.size)
    if not draw.chance(3):
        drawn["machine"] = machine(draw)
    *_, home = memories_of(drawn)
    draw.seldom(drawn, 2, optimizer_memory=lambda: home)
    draw.seldom(drawn, 3, parameter_memory=lambda: home)
    draw.seldom(drawn, 4, master_copy=lambda: True)
