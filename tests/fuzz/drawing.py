"""Small instance documents of every kind from a seed, and now and then a large one."""

from tests.fuzz.kinds import chains, graphs, large, pipelines
from tests.fuzz.kinds.figures import LARGE, READS, SIZES, TIMES, Draw
from tests.fuzz.kinds.machines import machine, memories_of

__all__ = ["KINDS", "LARGE", "READS", "SIZES", "TIMES", "Draw", "document", "machine", "memories_of"]

FORMS = {
    "chain": (5, "chain", 2, chains.chain),
    "ranks": (2, "chain", 3, chains.ranks),
    "adjoint": (4, "adjoint", 2, chains.adjoint),
    "join": (2, "join", 3, chains.join),
    "dag": (5, "dag", 2, graphs.dag),
    "devices": (3, "dag", 3, graphs.devices),
    "stream": (2, "dag", 3, graphs.stream),
    "tree": (3, "tree", 2, graphs.tree),
    "pipeline": (5, "pipeline", 3, pipelines.pipeline),
    "large": (0, "", 3, large.document),
}
"""For each form of instance: how often it is drawn, its kind, its schema, and who draws it."""

KINDS = ("chain", "adjoint", "dag", "tree", "join", "pipeline")
ODDS_OF_LARGE = 400
"""One instance in so many has hundreds to thousands of tasks."""


def document(seed, form=None):
    """Draw an instance document, of a certain form if that is given."""
    draw = Draw(seed)
    if form is None:
        names = [name for name, (often, *_) in FORMS.items() for _ in range(often)]
        form = "large" if draw.chance(ODDS_OF_LARGE) else draw.pick(names)
    _, kind, schema, drawn_by = FORMS[form]
    drawn = {"schema": f"remat.instance/{schema}", "kind": kind, **drawn_by(draw)}
    if drawn["kind"] != "pipeline":
        draw.seldom(drawn, 5, static_memory=draw.size)
    draw.seldom(drawn, 5, units=lambda: draw.pick([{"time": "unit", "memory": "unit"}, {"time": "ms"}, {"time": "ns"}]))
    draw.seldom(drawn, 10, name=lambda: draw.pick(["a", "två minnen", 'a "name"']))
    _shuffle(draw, drawn)
    return drawn


def _shuffle(draw, drawn):
    """List the memories and the links of a machine in any order: that never matters."""
    machine = drawn.get("machine")
    if machine and draw.chance(3):
        draw.random.shuffle(machine["memories"])
        draw.random.shuffle(machine.get("links", []))
