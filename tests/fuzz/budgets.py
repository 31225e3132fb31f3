"""Budgets: none, tight ones, those at which sizes add up exactly, and the smallest that can be known beforehand."""

from tests.fuzz.kinds.figures import SIZES
from tests.fuzz.kinds.machines import memories_of, working_memory
from tests.oracles import lowering


def plain(drawn):
    """Return a document with the defaults of an adjoint, which the oracles do not know."""
    defaults = {"forward_time": 1, "backward_time": 1, "state_size": 1} if drawn["kind"] == "adjoint" else {}
    return defaults | drawn


def draw_budget(draw, drawn):
    """Draw a budget for the working memory (None: unbounded), now and then by name or for another memory, too."""
    if draw.chance(10):
        return None
    if drawn["kind"] == "pipeline":
        return _of_devices(draw, drawn)
    least, most = _range(drawn)
    # Mostly tight ones, both ends, and whole numbers of the scale above the least, where sizes add up exactly.
    share = least + round((most - least) * draw.random.random() ** 2)
    exact = least + draw.whole(0, 8) * _scale(drawn)
    own = max(0, draw.pick([least - 1, least, share, share, share, exact, exact, exact, most]))
    working = working_memory(drawn)
    listed = [level["name"] for level in drawn.get("storage", ())]
    others = listed[1:] if listed else [name for name in memories_of(drawn) if name != working]
    if others and draw.chance(4):
        # Half of these budgets are tight in both memories: what does not fit in one barely fits in the other.
        near = least + draw.whole(0, 2) * _scale(drawn)
        return {working or listed[0]: draw.pick([own, near]), draw.pick(others): draw.whole(0, 6) * _scale(drawn)}
    return {working: own} if working and draw.chance(2) else own


def _scale(drawn):
    """Return the scale of the sizes: the largest one of which all are multiples."""
    sizes = [size for size in lowering.lower(plain(drawn)).values.values() if size]
    scales = sorted(set(SIZES), reverse=True)
    return next((scale for scale in scales if all(size % scale == 0 for size in sizes)), 1)


def _of_devices(draw, drawn):
    """Draw a budget for all devices."""
    graph = lowering.lower(plain(drawn))
    total, devices = sum(graph.values.values()), sum(one.get("count", 1) for one in drawn["cluster"]["devices"])
    return round(total / devices * draw.pick([0.1, 0.3, 0.5, 0.5, 0.7, 0.7, 1, 1, 1.5, 2]))


def _range(drawn):
    """Return estimates of the minimum working memory, and of its need without drops."""
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
