"""Time loops and their adjoints."""

from tests.fuzz.kinds.machines import machine


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


def levels(draw):
    """Draw an adjoint of unequal steps with one to three storage levels, some of which hold no state."""
    drawn = {"steps": [_step(draw) for _ in range(draw.whole(2, 8))]}
    draw.seldom(drawn, 2, forward_time=draw.time, state_size=draw.size, adjoint_size=draw.size)
    draw.seldom(drawn, 2, tape_size=draw.size)
    if "tape_size" in drawn:
        draw.seldom(drawn, 2, tape_time=draw.time)
    drawn["storage"] = [_level(draw, number) for number in range(draw.pick([1, 2, 2, 3]))]
    draw.seldom(drawn, 2, initial_state=lambda: draw.pick(drawn["storage"])["name"])
    return drawn


def two_levels(draw):
    """Draw an adjoint of equal steps with a RAM and a disk, which may work at the same time as the processor."""
    drawn = {"steps": draw.whole(1, 10), "state_size": draw.size() or 1}
    draw.seldom(drawn, 2, forward_time=draw.time, backward_time=draw.time)
    if draw.chance(3):
        slots = draw.whole(0, 4)
        ram = {"name": "ram", **draw.pick([{"slots": slots}, {"capacity": slots * drawn["state_size"]}])}
    else:
        ram = {"name": "ram", "slots": draw.whole(1, 3)}
    disk = {"name": "disk"}
    draw.seldom(disk, 2, write_time=draw.time, read_time=draw.time)
    draw.seldom(disk, 3, channel=lambda: "disk", slots=lambda: draw.whole(0, 4))
    drawn["storage"] = [ram, disk]
    return drawn


def tapes(draw):
    """Draw an adjoint of equal steps in one memory, whose tapes can be stored."""
    drawn = {"steps": draw.whole(1, 7), "state_size": draw.size() or 1}
    draw.seldom(drawn, 2, forward_time=draw.time, backward_time=draw.time, tape_time=draw.time)
    drawn["tape_size"] = draw.pick([1, 1, 2]) * drawn["state_size"]
    draw.seldom(drawn, 2, adjoint_size=lambda: drawn["state_size"])
    draw.seldom(drawn, 2, storage=lambda: [{"name": "ram", "slots": draw.whole(0, 5)}])
    return drawn


def one_memory(draw):
    """Draw an adjoint whose states and adjoints have one size and share a memory."""
    size = draw.size() or 1
    drawn = {"steps": draw.whole(1, 8), "state_size": size, "adjoint_size": size}
    draw.seldom(drawn, 2, forward_time=draw.time, backward_time=draw.time)
    if draw.chance(3):
        count = drawn["steps"]
        drawn["steps"] = [{"forward_time": draw.time(), "backward_time": draw.time()} for _ in range(count)]
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
