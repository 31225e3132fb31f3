"""Forms of instances: drawing frequency, drawing function, and algorithms of each form."""

import json

from tests.fuzz.kinds import adjoints, chains, graphs, large, pipelines
from tests.fuzz.kinds.figures import Draw
from tests.fuzz.kinds.machines import compress, shuffle

KINDS = ("chain", "adjoint", "dag", "tree", "join", "pipeline")

FORMS = {
    "chain": (5, "chain", 2, chains.chain),
    "plain-chain": (8, "chain", 2, chains.plain_chain),
    "hosted-chain": (8, "chain", 2, chains.hosted_chain),
    "parameters": (18, "chain", 3, chains.parameters),
    "ranks": (4, "chain", 3, chains.ranks),
    "adjoint": (4, "adjoint", 2, adjoints.adjoint),
    "levels": (4, "adjoint", 2, adjoints.levels),
    "two-levels": (6, "adjoint", 2, adjoints.two_levels),
    "tapes": (6, "adjoint", 2, adjoints.tapes),
    "one-memory": (5, "adjoint", 2, adjoints.one_memory),
    "join": (4, "join", 3, chains.join),
    "dag": (4, "dag", 2, graphs.dag),
    "hosted-dag": (5, "dag", 2, graphs.hosted),
    "wide-dag": (4, "dag", 2, graphs.wide),
    "forward-backward": (2, "dag", 2, graphs.forward_backward),
    "devices": (3, "dag", 3, graphs.devices),
    "stream": (4, "dag", 3, graphs.stream),
    "tree": (4, "tree", 2, graphs.tree),
    "disk-tree": (5, "tree", 2, graphs.disk_tree),
    "pipeline": (5, "pipeline", 3, pipelines.pipeline),
    "even-pipeline": (5, "pipeline", 3, pipelines.even),
    "split-pipeline": (10, "pipeline", 3, pipelines.split),
    "doubled-pipeline": (10, "pipeline", 3, pipelines.doubled),
    "hosted-pipeline": (14, "pipeline", 3, pipelines.hosted),
    "endless-pipeline": (14, "pipeline", 3, pipelines.without_end),
    "inference": (4, "pipeline", 3, pipelines.inference),
    "slices": (7, "pipeline", 3, pipelines.slices),
    "large": (0, "", 3, large.document),
}
"""For each form: how often it is drawn, its kind, its schema, and the function that draws it."""

_SWAPS = ("autoswap", "capuchin", "offload-greedy", "superneurons", "swapadvisor", "tflms")
_TREES = (
    *("all-to-all", "liu", "liu-postorder", "mem-booking", "memory-aware", "min-io-best-fit", "min-io-best-k"),
    *("min-io-first-fit", "min-io-lsnf", "minmem", "par-deepest-first", "par-inner-first", "par-subtrees"),
    *("postorder", "postorder-min-io", "proportional"),
)
_ONE_WAY = ("1f1b", "adapipe", "dapple-plan", "eager-1f1b", "ftpipe", "gpipe", "hetpipe", "interleaved-1f1b", "piper")
_ONE_WAY_TOO = ("pipe-exact", "pipe-search", "pipe-torch", "pipedream-dp", "tessel", "varuna")

DRAWN_FOR = {
    "plain-chain": (
        *("chain-best", "chain-exact", "offload-dp", "periodic", "pofo", "remat-offload-best", "revolve-chain"),
        *("rotor", "rotor-float"),
    ),
    "hosted-chain": (
        *_SWAPS,
        "pofo",
        "offload-dp",
        "remat-offload-best",
        "vdnn-all",
        "vdnn-conv",
        "vdnn-dyn",
        "vdnn-pp",
    ),
    "parameters": ("granular-offload", "l2l", "offmate", "weight-offload", "zero", "zero-infinity", "zero-offload"),
    "ranks": ("granular-offload", "weight-offload", "zero"),
    "chain": ("rotor",),
    "adjoint": ("adjoint-best", "walther-griewank"),
    "levels": ("adjoint-best", "poet", "walther-griewank"),
    "two-levels": (
        *("adjoint-best", "disk-revolve", "h-revolve", "multistage", "online-revolve", "periodic-disk-revolve"),
        *("revolve", "treeverse", "two-level", "two-level-async", "async-multistage"),
    ),
    "tapes": ("bptt-hsm", "bptt-ism", "bptt-msm", "mixed"),
    "one-memory": ("adjoint-dp", "bptt-hsm", "online-revolve", "revolve", "treeverse", "walther-griewank"),
    "join": ("join-dp",),
    "hosted-dag": (*_SWAPS, "auto-perf-maxing"),
    "wide-dag": ("dag-list-memory", "dag-offload-best", "dag-auto", "tarnawski-latency"),
    "forward-backward": ("auto-perf-maxing", "chen-greedy", "chen-sqrt"),
    "devices": ("tarnawski-latency",),
    "tree": _TREES,
    "disk-tree": _TREES,
    "stream": ("placement-bound", "placement-replicated", "tarnawski-dp", "tarnawski-ip"),
    "even-pipeline": (*_ONE_WAY, *_ONE_WAY_TOO, "pipe-plan"),
    "split-pipeline": ("dualpipev", "v-half", "v-min", "zb-h1", "zb-h2", "zb-v", "pipe-search"),
    "doubled-pipeline": ("chimera", "chimera-plan", "dualpipe", "gems"),
    "hosted-pipeline": ("optpipe", "pipe-plan", "pipeoffload"),
    "endless-pipeline": (
        *("1f1b-star", "2bw-plan", "hetpipe", "madpipe", "pipedream", "pipedream-2bw", "pipedream-dp"),
        *("pipeline-ilp", "pipemare", "spectrain", "tarnawski-dp"),
    ),
    "inference": ("placement-bound", "placement-replicated", "tarnawski-dp", "tarnawski-ip"),
    "slices": ("terapipe",),
}
"""Algorithms for which a form is drawn. They always solve it; other algorithms that accept it solve it sometimes."""

ODDS_OF_LARGE = 400
"""One instance in so many has hundreds to thousands of tasks."""


def document(seed, form=None):
    """Draw an instance document, of a given form if there is one.

    Returns
    -------
    (document, form)
    """
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
    compress(Draw(f"compress {seed}"), drawn)
    shuffle(draw, drawn)
    return json.loads(json.dumps(drawn)), form  # no two parts of it are one object
