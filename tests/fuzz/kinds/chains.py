"""Chains, time loops and joins of chains."""

from tests.fuzz.kinds.figures import READS
from tests.fuzz.kinds.machines import machine, memories_of


def chain(draw):
    """Draw a chain: variants, workspaces, in place, reads of its own, parameters."""
    plain, count = draw.chance(3), draw.pick([1, 2, 2, 3, 3, 3, 4, 4, 5])
    drawn = {"input_size": draw.size(), "stages": [_stage(draw, plain) for _ in range(count)]}
    if draw.chance(6):
        drawn["stages"] = [drawn["stages"][0] | {"repeat": count}]
    draw.seldom(drawn, 4, loss=lambda: {"time": draw.time(), "workspace": draw.size()}, input_gradient=lambda: False)
    draw.seldom(drawn, 2, machine=lambda: machine(draw))
    if draw.chance(3):
        drawn["stages"] = [stage | {"name": draw.pick(["conv", "pool", "conv 3×3"])} for stage in drawn["stages"]]
    if draw.chance(4):
        _add_parameters(draw, drawn)
    if not plain:
        draw.seldom(drawn, 6, in_place=lambda: True, backward_reads=lambda: draw.some(READS, 3))
    return drawn


def _stage(draw, plain):
    stage = {"forward_time": draw.time(), "backward_time": draw.time(), "output_size": draw.size()}
    draw.seldom(stage, 2, saved_size=draw.size)
    draw.seldom(stage, 4, forward_workspace=draw.size, backward_workspace=lambda: draw.size(12))
    draw.seldom(stage, 6, saving_workspace=draw.size, saving_forward_time=draw.time, gradient_size=draw.size)
    if not plain:
        draw.seldom(stage, 10, backward_reads=lambda: draw.some(READS, 3))
        draw.seldom(stage, 6, variants=lambda: [_variant(draw) for _ in range(draw.whole(1, 3))])
    return stage


def _variant(draw):
    variant = {}
    draw.seldom(variant, 2, saved_size=draw.size, backward_time=draw.time)
    draw.seldom(variant, 4, saving_forward_time=draw.time, saving_workspace=draw.size, backward_workspace=draw.size)
    draw.seldom(variant, 8, backward_reads=lambda: draw.some(READS, 3))
    return variant


def _add_parameters(draw, drawn):
    for stage in drawn["stages"]:
        draw.seldom(stage, 2, parameter_size=draw.size, optimizer_size=draw.size)
        draw.seldom(stage, 3, update_time=draw.time, parameter_gradient_size=draw.size)
    if not draw.chance(3):
        drawn["machine"] = machine(draw)
    *_, home = memories_of(drawn)
    draw.seldom(drawn, 2, optimizer_memory=lambda: home)
    draw.seldom(drawn, 3, parameter_memory=lambda: home)
    draw.seldom(drawn, 4, master_copy=lambda: True)


def adjoint(draw):
    """Draw an adjoint: equal steps or not, tapes, storage levels or a machine."""
    count = draw.whole(1, 7)
    drawn = {"steps": [_step(draw) for _ in range(count)] if draw.chance(3) else count}
    draw.seldom(drawn, 2, forward_time=draw.time, backward_time=draw.time, state_size=draw.size)
    draw.seldom(drawn, 3, adjoint_size=draw.size)
    draw.seldom(drawn, 3, tape_size=draw.size)
    if "tape_size" in drawn:
        draw.seldom(drawn, 2, tape_time=draw.time)
    if draw.whole(1, 5) < 3:
        drawn["storage"] = [_level(draw, number) for number in range(draw.pick([1, 2, 2, 3]))]
        draw.seldom(drawn, 4, initial_state=lambda: draw.pick(drawn["storage"])["name"])
    else:
        draw.seldom(drawn, 2, machine=lambda: machine(draw))
    return drawn


def _step(draw):
    step = {}
    draw.seldom(step, 2, forward_time=draw.time, backward_time=draw.time)
    draw.seldom(step, 3, state_size=draw.size, adjoint_size=draw.size)
    return step


def _level(draw, number):
    level = {"name": f"level{number}"}
    match draw.whole(0, 3):
        case 0 | 1:
            level["slots"] = draw.whole(0, 4)
        case 2:
            level["capacity"] = draw.size(20)
    draw.seldom(level, 3, write_time=draw.time, read_time=draw.time)
    draw.seldom(level, 4, bandwidth=lambda: draw.whole(1, 5))
    draw.seldom(level, 6, channel=lambda: draw.pick(["bus", "disk"]))
    return level


def join(draw):
    """Draw a join: up to three chains that meet in one loss, some of them equal."""
    plain, count = draw.chance(2), draw.pick([1, 2, 2, 2, 3])
    most = 5 // count
    chains = [
        {"input_size": draw.size(), "stages": [_stage(draw, plain) for _ in range(draw.whole(1, most))]}
        for _ in range(count)
    ]
    drawn = {"chains": [chains[0]] * count if draw.chance(3) else chains}
    draw.seldom(drawn, 4, loss=lambda: {"time": draw.time(), "workspace": draw.size()}, input_gradient=lambda: False)
    if not plain:
        draw.seldom(drawn, 6, in_place=lambda: True, backward_reads=lambda: draw.some(READS, 3))
        draw.seldom(drawn, 5, machine=lambda: machine(draw))
    return drawn


def ranks(draw):
    """Draw a chain with parameters that equal ranks share out, or that may lie anywhere, or without end."""
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
