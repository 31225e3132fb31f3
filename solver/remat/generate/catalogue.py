"""What can be generated: families and their parameters as data, so that listing them imports no generator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Literal

from remat.generate.document import Document

ParameterType = Literal["int", "float", "str", "bool", "size"]
ParameterValue = int | float | str | bool | None


def flag(name: str) -> str:
    """Return a parameter's option on the command line."""
    return "--" + name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a family.

    Parameters
    ----------
    name : str
        As in Python; the command line writes ``_`` as ``-``.
    type : {"int", "float", "str", "bool", "size"}
        A size is an integer; whoever reads text (``2GiB``) turns it into one.
    default : int, float, str, bool or None
        None: left to the generator, which says what it then takes.
    help : str
    choices : tuple of str
        Empty where any value of the type may be tried.
    """

    name: str
    type: ParameterType
    default: ParameterValue
    help: str
    choices: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The option on the command line."""
        return flag(self.name)


@dataclass(frozen=True, slots=True)
class Family:
    """A family of instances.

    Parameters
    ----------
    kind, name : str
        Together unique.
    function : str
        ``module:function`` below `remat.generate`.
    summary : str
        One line.
    parameters : tuple of Parameter
    """

    kind: str
    name: str
    function: str
    summary: str
    parameters: tuple[Parameter, ...]

    def load(self) -> Callable[..., Document]:
        """Import and return the generator."""
        module, _, function = self.function.partition(":")
        loaded: Callable[..., Document] = getattr(import_module(f"remat.generate.{module}"), function)
        return loaded


def _int(name: str, default: int | None, text: str) -> Parameter:
    return Parameter(name, "int", default, text)


def _size(name: str, default: int | None, text: str) -> Parameter:
    return Parameter(name, "size", default, text)


def _float(name: str, default: float | None, text: str) -> Parameter:
    return Parameter(name, "float", default, text)


def _bool(name: str, default: bool | None, text: str) -> Parameter:
    return Parameter(name, "bool", default, text)


def _choice(name: str, choices: tuple[str, ...], text: str, default: str | None = None) -> Parameter:
    return Parameter(name, "str", default or choices[0], text, choices)


_SEED = _int("seed", 0, "Seed of the draws, at least 0.")
_UNITS = _choice("units", ("unit", "si"), "Plain units, or seconds and bytes.")
_DEVICE = (
    _float("flops", None, "FLOP/s of the device (default: an A100's for the dtype)."),
    _float("bandwidth", None, "Memory bandwidth in bytes/s (default: an A100's, 1.555e12)."),
)
_TASK_COUNT = _int("nodes", 100, "Number of tasks (of the forward graph, where it is trained).")
_LISTED = _choice("order", ("random", "layer"), "Reference order: random topological, or layer by layer.")
_DTYPE = _choice("dtype", ("fp32", "fp16", "bf16"), "Type of activations, gradients and weights.")
_OPTIMIZER = _choice(
    "optimizer",
    ("adam", "adam8", "momentum", "adafactor", "sgd", "none"),
    "What lies there for each parameter, at 16 bit: 16, 10, 12, 8, 4 or 0 bytes (docs/weights.md).",
)
_SUMS = (
    _bool("master", None, "Whether states hold a copy of 16-bit parameters (default: where there are states)."),
    _choice("accumulation", ("same", "fp32"), "Type in which gradients are added up: the parameters', or fp32."),
)
_STATES = (
    _OPTIMIZER,
    *_SUMS,
    _choice(
        "parameters",
        ("static", "device", "host", "nvme", "any"),
        "Static memory, or values of the graph: where they lie; any: the schedule says.",
    ),
    _choice("states", ("host", "device", "nvme", "any"), "Where optimizer states lie, if parameters are values."),
    _float("link", 12e9, "Bandwidth between device and host in bytes/s."),
    _float("host_speed", 0.0625, "Speed of updates at the host, the device's being 1."),
    _float("nvme", 3e9, "Bandwidth between host and NVMe in bytes/s, where something lies there."),
    _int("data", 1, "Ranks that share the batch out; times and sizes are those of one."),
    _int("zero", 0, "Stage of ZeRO: they share out 1 optimizer states, 2 gradients, 3 parameters, too."),
    _size("bucket", 0, "Bytes of gradients that ranks exchange together."),
    _float("network", 25e9, "Bandwidth from a rank to the next in bytes/s."),
    _float("network_latency", 0.0, "Seconds that each message between ranks takes beside."),
    _int("staleness", None, "Steps follow each other without end, so many updates behind (docs/weights.md)."),
)
_KEEP = _bool("keep_gradients", True, "Keep the weights' gradients resident to the end.")
_INPUT_GRADIENT = _bool("input_gradient", True, "Whether the gradient of the chain's input is wanted.")
_STORAGE = (
    Parameter("storage", "str", "", "Checkpoint levels, as in 'ram:slots=10;disk:bandwidth=2e9,write_time=1'."),
    Parameter("initial_state", "str", "live", "'live', or the level that also holds the first state."),
)
_TIMES = (
    _int("min_time", 1, "Least time."),
    _int("max_time", 1000, "Largest time."),
)
_SIZES = (
    _size("min_size", 1, "Least size."),
    _size("max_size", 5000, "Largest size."),
)
_ZERO = _float("zero_probability", 0.0, "Probability that a drawn figure is 0.")
_TASKS = (
    *_TIMES,
    *_SIZES,
    _ZERO,
    _float("workspace_probability", 0.0, "Probability that a task has a workspace."),
    _float("multi_output_probability", 0.0, "Probability that a task writes two values."),
    _float("alternative_probability", 0.0, "Probability that a task has a slower alternative."),
    _bool("training", False, "Mirror the graph: a loss, then a backward task for every task."),
    _SEED,
)
_PIPELINE = (
    _int("devices", 4, "Number of devices."),
    _int("micro_batches", 8, "Micro-batches of a step."),
)
_CHANGING = (
    _choice("weights", ("flush", "stash", "double", "single"), "When parameters change (docs/pipelines.md)."),
    _int("update_every", None, "Of double: micro-batches from one change to the next (default: twice the devices)."),
)
_COPIES = _int("copies", 1, "Devices on which one layer may lie.")
_EXCHANGE = _choice("exchange", ("none", "ring"), "How copies add up their gradients: not counted, or in a ring.")
_TRANSFERS = _choice(
    "transfers",
    ("overlap", "blocking", "rendezvous", "grouped"),
    "What transfers hold up: nothing, the sender, both ends one by one, or in groups (docs/pipelines.md).",
)
_NODES = _int("nodes", 1000, "Number of nodes.")
_FRONTS = (
    _choice("ordering", ("nd", "natural"), "Geometric nested dissection, or row by row."),
    _int("relax", 0, "Nodes absorb children as long as they eliminate at most so many columns."),
)
_WEIGHTS = (
    _size("min_output", 1, "Least output size."),
    _size("max_output", 1000, "Largest output size."),
    _size("max_workspace", 0, "Largest workspace."),
    _int("min_time", 1, "Least time."),
    _int("max_time", 100, "Largest time."),
    _ZERO,
    _choice("orientation", ("in", "out"), "In-tree (leaves first) or out-tree (root first)."),
    _SEED,
)


def _sides(*names: str, default: int = 50) -> tuple[Parameter, ...]:
    return tuple(_int(name, default, f"Points along the {name[1]} axis.") for name in names)


def _defaulting(parameters: tuple[Parameter, ...], **defaults: ParameterValue) -> tuple[Parameter, ...]:
    return tuple(replace(p, default=defaults.get(p.name, p.default)) for p in parameters)


_CATALOGUE = (
    Family(
        "chain",
        "transformer",
        "networks.transformer:transformer",
        "Training step of a transformer, from published layer formulas.",
        (
            _choice(
                "preset",
                ("gpt2-small", "gpt2-xl", "llama-7b-like", "bert-large"),
                "Where every hyper-parameter that is not given comes from.",
            ),
            _int("layers", None, "Number of blocks."),
            _int("hidden", None, "Width of the residual stream."),
            _int("heads", None, "Attention heads; they divide the hidden width."),
            _int("sequence", None, "Tokens per sequence."),
            _int("vocabulary", None, "Size of the vocabulary."),
            _int("feedforward", None, "Inner width of the MLP (default: 4 x hidden, or the preset's)."),
            _bool("dropout", None, "Whether dropout masks are saved (default: the preset's)."),
            _int("batch", 8, "Sequences in a batch."),
            _choice("dtype", ("fp16", "bf16", "fp32"), "Type of activations, gradients and weights.", "bf16"),
            _bool("flash", True, "Tiled attention: no score matrices are stored."),
            _choice("granularity", ("block", "sublayer"), "A stage per block, or per attention and MLP."),
            *_STATES,
            _int("before", 0, "Tokens of each sequence before these, which then are a slice of it."),
            *_DEVICE,
        ),
    ),
    Family(
        "chain",
        "resnet",
        "networks.resnet:resnet",
        "Training step of a ResNet, from the published layer table.",
        (
            _choice("depth", ("18", "34", "50", "101", "152"), "Which ResNet.", "50"),
            _int("image", 224, "Edge of the images in pixels."),
            _int("batch", 32, "Images in a batch."),
            _int("classes", 1000, "Number of classes."),
            _DTYPE,
            _choice(
                "optimizer",
                ("momentum", "sgd", "none"),
                "What stays resident: 3, 2 or 0 copies of the weights.",
                "none",
            ),
            *_DEVICE,
        ),
    ),
    Family(
        "chain",
        "random",
        "random_chain:random_chain",
        "Heterogeneous chain with every time and size drawn.",
        (
            _int("length", 50, "Number of stages."),
            *_defaulting(_TIMES, max_time=100),
            *_defaulting(_SIZES, max_size=1000),
            _float("saved_factor", 3, "Saved sizes go up to this many times the largest size."),
            _size("max_workspace", 0, "Largest workspace."),
            _ZERO,
            _INPUT_GRADIENT,
            _UNITS,
            _SEED,
        ),
    ),
    Family(
        "chain",
        "homogeneous",
        "random_chain:homogeneous_chain",
        "Chain of equal stages.",
        (
            _int("length", 50, "Number of stages."),
            _float("forward_time", 1, "Time of a forward."),
            _float("backward_time", 2, "Time of a backward."),
            _size("output_size", 1, "Size of an output, and of the input."),
            _size("saved_size", 3, "What a backward needs beyond its stage's input and output."),
            _size("workspace", 0, "Workspace of forwards and backwards."),
            _INPUT_GRADIENT,
            _UNITS,
        ),
    ),
    Family(
        "adjoint",
        "uniform",
        "adjoint:time_loop",
        "Equal time steps, with any storage levels.",
        (
            _int("steps", 100, "Number of time steps."),
            _float("forward_time", 1, "Time of a forward step."),
            _float("backward_time", 1, "Time of a backward step."),
            _size("state_size", 1, "Size of a state."),
            _size("adjoint_size", None, "Size of an adjoint (default: the state's)."),
            *_STORAGE,
            _size("tape_size", None, "Size of one step's tape, where tapes can be stored."),
            _UNITS,
        ),
    ),
    Family(
        "adjoint",
        "heterogeneous",
        "adjoint:heterogeneous_time_loop",
        "Time steps that differ in time and, with a range, in state size.",
        (
            _int("steps", 100, "Number of time steps."),
            *_defaulting(_TIMES, max_time=20),
            _float("backward_factor", 2, "Backward time over forward time."),
            *_defaulting(_SIZES, max_size=1),
            *_STORAGE,
            _UNITS,
            _SEED,
        ),
    ),
    Family(
        *("dag", "layered", "layered:layered_dag", "Random layered graph with one source and one sink."),
        (
            _TASK_COUNT,
            _int("layers", 0, "Number of layers; 0: about twice the root of the nodes."),
            _float("edge_probability", 0.3, "Probability of an edge between tasks of neighbouring layers."),
            _float("skip_probability", 0.2, "Probability that a task reads one more, earlier value."),
            _LISTED,
            *_TASKS,
        ),
    ),
    Family(
        *("dag", "layered-local", "layered:local_layered_dag"),
        "Random layered graph of the literature: layers of drawn widths, edges between neighbours.",
        (
            _TASK_COUNT,
            _float("width", 0.3, "0 to 1; the larger, the fewer and wider layers."),
            _float("variability", 0.75, "Share by which widths of layers differ from their mean, at the most."),
            _float("edge_density", 0.2, "Share of the pairs of tasks of neighbouring layers that are joined."),
            _float("skip_density", 0.14, "Share of all edges that skip layers."),
            _LISTED,
            *_TASKS,
        ),
    ),
    Family(
        *("dag", "random", "dag:random_dag", "Order-respecting Erdos-Renyi graph."),
        (
            _TASK_COUNT,
            _float("edge_probability", 0.05, "Probability that a task reads an earlier one."),
            *_TASKS,
        ),
    ),
    Family(
        *("dag", "series-parallel", "dag:series_parallel_dag", "Random two-terminal series-parallel graph."),
        (
            _TASK_COUNT,
            _float("series_probability", 0.5, "Probability that a new task splits an edge."),
            *_TASKS,
        ),
    ),
    Family(
        "dag",
        "unet",
        "networks.unet_mlp:unet",
        "Training graph of a U-Net, from its published layers.",
        (
            _int("depth", 4, "Poolings; each halves the edge and doubles the channels."),
            _int("channels", 64, "Channels at full resolution."),
            _int("image", 256, "Edge of the images, a multiple of 2^depth."),
            _int("batch", 4, "Images in a batch."),
            _int("classes", 2, "Number of classes."),
            _DTYPE,
            _KEEP,
            *_DEVICE,
        ),
    ),
    Family(
        "dag",
        "mlp",
        "networks.unet_mlp:mlp",
        "Training graph of a multilayer perceptron.",
        (
            _int("layers", 12, "Number of layers."),
            _int("width", 1024, "Units of a layer."),
            _int("batch", 256, "Samples in a batch."),
            _bool("dropout", True, "Whether dropout masks are drawn and saved."),
            _DTYPE,
            _KEEP,
            *_DEVICE,
        ),
    ),
    Family(
        "tree",
        "random",
        "tree:random_tree",
        "Random tree by recursive attachment or a Pruefer sequence.",
        (
            _NODES,
            _choice("method", ("recursive", "prufer"), "Recursive attachment, or uniform labelled trees."),
            _int("max_children", 0, "Most children of a node (recursive); 0: any number."),
            *_WEIGHTS,
        ),
    ),
    Family("tree", "binary", "tree:binary_tree", "Random binary tree.", (_NODES, *_WEIGHTS)),
    Family(
        "tree",
        "complete",
        "tree:complete_tree",
        "Complete k-ary tree.",
        (replace(_NODES, default=1023), _int("arity", 2, "Children of an inner node."), *_WEIGHTS),
    ),
    Family("tree", "chain", "tree:chain_tree", "A single branch.", (_NODES, *_WEIGHTS)),
    Family("tree", "star", "tree:star_tree", "A root with leaves.", (_NODES, *_WEIGHTS)),
    Family(
        "tree",
        "caterpillar",
        "tree:caterpillar_tree",
        "A chain with leaves on every node.",
        (_NODES, _int("legs", 1, "Leaves per node of the spine."), *_WEIGHTS),
    ),
    Family(
        "tree",
        "postorder-trap",
        "tree:postorder_trap",
        "The family T_K, whose best post-order is arbitrarily bad.",
        (
            _int("depth", 3, "K, the number of nested levels."),
            _int("branches", 3, "b, the branches of each root."),
            _size("memory", 300, "M, the largest size; a multiple of the branches."),
            _size("epsilon", 1, "The small size."),
        ),
    ),
    Family("tree", "grid2d", "grid:grid2d", "Assembly tree of the 5-point Laplacian.", (*_sides("nx", "ny"), *_FRONTS)),
    Family(
        "tree",
        "grid3d",
        "grid:grid3d",
        "Assembly tree of the 7-point Laplacian.",
        (*_sides("nx", "ny", "nz", default=12), *_FRONTS),
    ),
    Family(
        "pipeline",
        "uniform",
        "pipeline:uniform",
        "Equal layers on equal devices: the setting in which schedules are compared.",
        (
            *_PIPELINE,
            _int("layers", None, "Number of layers (default: one a device)."),
            _bool("skips", False, "Layers of the second half read their mirror images, too, as in a U-Net."),
            _int("branches", 1, "Towers of layers, each with an input of its own, that meet in the last layer."),
            _int("forward_time", 1, "Time of a layer's forward, for one micro-batch."),
            _int("backward_time", 2, "Time of its backward, or of the half that makes the input's gradient."),
            _int("weight_time", 0, "Time of the half that makes the parameters' gradient (0: the backward is whole)."),
            _int("paired_time", None, "Time of a forward and a whole backward at once (default: the sum)."),
            _size("activation", 1, "What a forward saves."),
            _size("kept", 0, "What of it stays from the first half of the backward to the second."),
            _size("parameters", 0, "Size of a layer's parameters."),
            _int("hop", 0, "Time between two devices."),
            _COPIES,
            _EXCHANGE,
            _TRANSFERS,
            *_CHANGING,
        ),
    ),
    Family(
        "pipeline",
        "transformer",
        "pipeline:transformer",
        "A transformer's training step on a cluster, from published formulas.",
        (
            _choice("preset", ("gpt2-small", "gpt2-xl", "llama-7b-like", "bert-large"), "Architecture."),
            *_PIPELINE,
            _int("batch", 1, "Sequences in a micro-batch."),
            Parameter("link", "str", "300GB/s", "Bandwidth each way between two devices of a node."),
            Parameter("latency", "str", "0s", "What each transfer takes beside that."),
            _int("node", None, "Devices of a node (default: all are of one)."),
            Parameter("network", "str", "25GB/s", "Bandwidth each way between devices of different nodes."),
            Parameter("memory", "str", None, "Memory of each device (default: unbounded)."),
            _bool("split", True, "Backwards in two halves, input's and parameters' gradient."),
            _COPIES,
            _EXCHANGE,
            _TRANSFERS,
            *_CHANGING,
            Parameter("sizes", "str", "", "Other sizes that micro-batches may have, as in 2,4; the schedule chooses."),
            _int("slices", 0, "Equal parts of a sequence at whose ends the schedule may cut it; 0: it stays whole."),
            _choice("dtype", ("fp32", "fp16", "bf16"), "Type of activations, gradients and weights.", "bf16"),
            _bool("flash", True, "Attention in tiles, without score matrices."),
            _OPTIMIZER,
            *_SUMS,
            _int("data", 1, "Ranks, neighbours among the devices, that train on parts of the batch, a pipeline each."),
            _int("zero", 0, "Stage of ZeRO: they share out 1 optimizer states, 2 gradients, 3 parameters, too."),
            _bool("keep", False, "What ranks gather and reduce stays for the step: once, not for each micro-batch."),
            *_DEVICE,
        ),
    ),
    Family(
        "join",
        "siamese",
        "join:siamese",
        "Equal ResNets whose embeddings one loss compares.",
        (
            _int("branches", 2, "Images that are compared: 2 of a pair, 3 of a triplet."),
            _choice("depth", ("18", "34", "50", "101", "152"), "Which ResNet."),
            _int("image", 224, "Edge of the images in pixels."),
            _int("batch", 32, "Pairs, or triplets, of a batch."),
            _int("embedding", 128, "Width of what is compared."),
            _DTYPE,
            *_DEVICE,
        ),
    ),
    Family(
        "join",
        "cross-modal",
        "join:cross_modal",
        "A ResNet for images and a transformer for texts, with one contrastive loss.",
        (
            _choice("depth", ("18", "34", "50", "101", "152"), "Which ResNet.", "50"),
            _int("image", 224, "Edge of the images in pixels."),
            _int("layers", 12, "Blocks of the transformer."),
            _int("hidden", 512, "Width of its residual stream."),
            _int("heads", 8, "Attention heads; they divide the hidden width."),
            _int("sequence", 77, "Tokens of a text."),
            _int("vocabulary", 49408, "Size of the vocabulary."),
            _int("batch", 32, "Pairs of an image and a text."),
            _int("embedding", 512, "Width of what is compared."),
            replace(_DTYPE, default="bf16"),
            *_DEVICE,
        ),
    ),
)

FAMILIES: dict[str, Family] = {f"{family.kind}/{family.name}": family for family in _CATALOGUE}
"""Every family by ``kind/name``."""

KINDS = tuple(dict.fromkeys(family.kind for family in _CATALOGUE))
"""The kinds of instances that can be generated."""
