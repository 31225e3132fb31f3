"""Parameters of families as data, and those that several families share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Literal

from remat.generate.devices import DEFAULT, HOST_LINK, NETWORK, devices
from remat.generate.document import Document
from remat.generate.optimizers import IMPLEMENTATIONS, NAMES

ParameterType = Literal["int", "float", "str", "bool", "size", "rate"]
ParameterValue = int | float | str | bool | None

LEAST_RATE = 10**6
"""Bytes/s below which a bare whole number on the command line is hardly meant as bytes/s."""


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
    type : {"int", "float", "str", "bool", "size", "rate"}
        A size is an integer, and a rate a number of bytes/s; the command line converts texts (``2GiB``, ``12GB/s``).
    default : int, float, str, bool or None
        None: the generator chooses, as `help` says.
    help : str
    choices : tuple of str
        Empty if all values of the type are allowed.
    aliases : tuple of str
        Other names on the command line, written like `name`.
    many : bool
        Whether the command line may repeat it; the texts are joined with commas.
    """

    name: str
    type: ParameterType
    default: ParameterValue
    help: str
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    many: bool = False

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


def integer(name: str, default: int | None, text: str) -> Parameter:
    """Return a whole number."""
    return Parameter(name, "int", default, text)


def size(name: str, default: int | None, text: str) -> Parameter:
    """Return a size."""
    return Parameter(name, "size", default, text)


def number(name: str, default: float | None, text: str) -> Parameter:
    """Return a number."""
    return Parameter(name, "float", default, text)


def rate(name: str, default: float | None, text: str) -> Parameter:
    """Return a bandwidth in bytes/s."""
    return Parameter(name, "rate", default, text)


def boolean(name: str, default: bool | None, text: str) -> Parameter:
    """Return a flag."""
    return Parameter(name, "bool", default, text)


def choice(name: str, choices: tuple[str, ...], text: str, default: str | None = None) -> Parameter:
    """Return a text of a few, of which the first is the default."""
    return Parameter(name, "str", default or choices[0], text, choices)


PRESETS = ("gpt2-small", "gpt2-xl", "llama-7b-like", "llama-70b", "bert-large")
"""Transformers whose hyper-parameters are known."""

PRESET = choice("preset", PRESETS, "Model that supplies the hyper-parameters that are not given.")
SHAPE = (
    integer("layers", None, "Number of blocks."),
    integer("hidden", None, "Width of the residual stream."),
    integer("heads", None, "Attention heads; they divide the hidden width."),
    integer("sequence", None, "Tokens per sequence."),
    integer("vocabulary", None, "Size of the vocabulary."),
    replace(
        integer("feedforward", None, "Inner width of the MLP (default: from the preset, or 4 x hidden)."),
        aliases=("ffn",),
    ),
    replace(
        integer("key_heads", None, "Heads of keys and values, shared by queries (default: from the preset)."),
        aliases=("kv_heads",),
    ),
    boolean("dropout", None, "Save dropout masks (default: from the preset)."),
)
SIXTEEN = choice("dtype", ("fp16", "bf16", "fp32"), "Type of activations, gradients and weights.", "bf16")
FLASH = boolean("flash", True, "Tiled attention: no score matrices are stored.")
HOST = (
    rate("link", HOST_LINK, "Bandwidth between device and host."),
    number("host_speed", 0.0625, "Speed of updates at the host, relative to the device."),
)
OPTIMIZER = choice(
    "optimizer",
    ("adam", "adam8", "momentum", "adafactor", "sgd", "none"),
    "Optimizer; parameters, gradients and states take 16, 10, 12, 8, 4 or 4 bytes per parameter in 16-bit training "
    "(docs/reference/weights.md).",
)
SUMS = (
    boolean(
        "master", None, "Optimizer states contain an fp32 copy of 16-bit parameters (default: if there are states)."
    ),
    choice(
        "accumulation", ("same", "fp32"), "Type in which gradients are accumulated: that of the parameters, or fp32."
    ),
)
STATES = (
    OPTIMIZER,
    *SUMS,
    choice(
        "parameters",
        ("static", "none", "device", "host", "nvme", "any"),
        "Parameters as static memory, omitted, or as values in this memory; any: the schedule chooses.",
    ),
    boolean("frozen", False, "Static parameters are frozen: no gradients, no optimizer states."),
    choice("states", ("host", "device", "nvme", "any"), "Memory of optimizer states, if parameters are values."),
    replace(HOST[0], default=None, help=f"Bandwidth between device and host (default: {HOST_LINK / 1e9:g}GB/s)."),
    *HOST[1:],
    rate("nvme", 3e9, "Bandwidth between host and NVMe, if values are on NVMe."),
    integer("data", 1, "Data-parallel ranks; times and sizes are those of one rank."),
    integer("zero", 0, "ZeRO stage: ranks partition 1 optimizer states, 2 also gradients, 3 also parameters."),
    size("bucket", 0, "Bytes of gradients that ranks exchange together."),
    rate("network", NETWORK, "Bandwidth from each rank to the next."),
    number("network_latency", 0.0, "Seconds of latency for each message between ranks."),
    integer(
        "staleness",
        None,
        "Repeat steps without end, with parameters that are this many updates old (docs/reference/weights.md).",
    ),
)
DEVICE = (
    choice("device", tuple(devices()), "Device whose peak rates determine the times.", DEFAULT),
    number("flops", None, "FLOP/s (default: of the device for the dtype)."),
    rate("bandwidth", None, "Memory bandwidth (default: of the device)."),
)
STEP = (
    integer("batch", 1, "Sequences in a micro-batch."),
    integer("micro_batches", 1, "Micro-batches between two updates of the parameters."),
    SIXTEEN,
    FLASH,
    choice(
        "parameters",
        ("none", "static", "host"),
        "Leave parameters out, count them as static memory, or make them values at the host.",
    ),
    Parameter(
        "gradients",
        "str",
        None,
        "Drop gradients, or accumulate them over micro-batches (default with parameters at the host: accumulate).",
        ("none", "accumulate"),
    ),
    choice(
        "optimizer", ("adam", "sgd", "none"), "Optimizer whose states the updates read, if parameters are at the host."
    ),
    *HOST,
    *DEVICE,
)
MODEL_DEVICE = "H100"
"""The default device of families that read a configuration, and of `remat fit`."""

OPTIMIZER_STEP = (
    Parameter(
        *("optimizer", "str", "adam"),
        f"{', '.join(NAMES)}, or none; optionally with its implementation, as in {NAMES[3]}-{IMPLEMENTATIONS[1]}.",
    ),
    choice(
        "precision",
        ("mixed", "pure"),
        "States in fp32 with a copy of 16-bit parameters, or in the parameters' type.",
    ),
    Parameter(
        "step",
        "str",
        None,
        "Implementation of the optimizer's step (default: PyTorch's for the device).",
        IMPLEMENTATIONS,
    ),
    *SUMS,
    integer("data", 1, "Data-parallel ranks; all sizes are those of one rank."),
    integer("zero", 0, "ZeRO level: ranks partition 1 optimizer states, 2 also gradients, 3 also parameters."),
    size("reserve", 2**30, "Memory for context and fragmentation."),
)
"""The options of a configured model's training that change bytes; `remat fit` and `remat generate chain` share them."""

HOMES_OF_MODEL = (
    Parameter(
        "parameters",
        "str",
        None,
        "Parameters as static memory, left out, or as values in this memory (default: static; with states: device).",
        ("static", "none", "device", "host", "any"),
    ),
    Parameter(
        "states",
        "str",
        None,
        "Memory of optimizer states (default: static; with parameters in a memory: host).",
        ("host", "device", "any"),
    ),
    rate(
        "link",
        None,
        "Bandwidth between device and host (default: the device's); with static parameters, of a host for activations.",
    ),
    number("host_speed", None, "Speed of updates at the host, the device's being 1; 0: none there (default: 1/16)."),
    rate("network", None, f"Bandwidth from each rank to the next (default: {NETWORK / 1e9:g}GB/s)."),
)
SEED = integer("seed", 0, "Random seed, at least 0.")
UNITS = choice("units", ("unit", "si"), "Abstract units, or seconds and bytes.")
TASK_COUNT = integer("nodes", 100, "Number of tasks (with training, of the forward graph).")
LISTED = choice("order", ("random", "layer"), "Reference order: random topological, or layer by layer.")
DTYPE = choice("dtype", ("fp32", "fp16", "bf16"), "Type of activations, gradients and weights.")
KEEP = boolean("keep_gradients", True, "Keep the gradients of the weights until the end.")
TRAINED = (DTYPE, KEEP, *DEVICE)
INPUT_GRADIENT = boolean("input_gradient", True, "Compute the gradient of the chain's input.")
STORAGE = (
    Parameter("storage", "str", "", "Checkpoint levels, as in 'ram:slots=10;disk:bandwidth=2e9,write_time=1'."),
    Parameter("initial_state", "str", "live", "'live', or the level that also holds the first state."),
)
TIMES = (
    integer("min_time", 1, "Smallest time."),
    integer("max_time", 1000, "Largest time."),
)
SIZES = (
    size("min_size", 1, "Smallest size."),
    size("max_size", 5000, "Largest size."),
)
ZERO = number("zero_probability", 0.0, "Probability that a drawn time or size is 0.")
TASKS = (
    *TIMES,
    *SIZES,
    ZERO,
    number("workspace_probability", 0.0, "Probability that a task has a workspace."),
    number("multi_output_probability", 0.0, "Probability that a task writes two values."),
    number("alternative_probability", 0.0, "Probability that a task has a slower alternative."),
    boolean("training", False, "Mirror the graph: a loss, then a backward task for every task."),
    SEED,
)
PIPELINE = (
    integer("devices", 4, "Number of devices."),
    integer("micro_batches", 8, "Micro-batches of a step."),
)
LINKS = (
    Parameter("link", "str", "300GB/s", "Bandwidth in each direction between two devices of a node."),
    Parameter("latency", "str", "0s", "Latency of each transfer."),
    integer("node", None, "Devices in a node (default: all)."),
    Parameter("network", "str", "25GB/s", "Bandwidth in each direction between devices of different nodes."),
    Parameter("memory", "str", None, "Memory of each device (default: unbounded)."),
)
CHANGING = (
    choice(
        "weights",
        ("flush", "stash", "double", "single", "predicted"),
        "When parameters change (docs/reference/pipelines.md).",
    ),
    integer(
        "update_every", None, "For double weights: micro-batches between two updates (default: twice the devices)."
    ),
)
COPIES = integer("copies", 1, "Maximum number of devices with a copy of one layer.")
EXCHANGE = choice("exchange", ("none", "ring"), "Sum of the gradients of copies: not counted, or in a ring.")
TRANSFERS = choice(
    "transfers",
    ("overlap", "blocking", "rendezvous", "grouped"),
    "Devices that transfers block: none, the sender, both one by one, or both in groups (docs/reference/pipelines.md).",
)
NODES = integer("nodes", 1000, "Number of nodes.")
FRONTS = (
    choice("ordering", ("nd", "natural"), "Geometric nested dissection, or row by row."),
    integer("relax", 0, "Merge children into nodes that eliminate at most this many columns."),
)
WEIGHTS = (
    size("min_output", 1, "Smallest output size."),
    size("max_output", 1000, "Largest output size."),
    size("max_workspace", 0, "Largest workspace."),
    integer("min_time", 1, "Smallest time."),
    integer("max_time", 100, "Largest time."),
    ZERO,
    choice("orientation", ("in", "out"), "In-tree (leaves first) or out-tree (root first)."),
    SEED,
)


def sides(*names: str, default: int = 50) -> tuple[Parameter, ...]:
    """Return the extents of a grid."""
    return tuple(integer(name, default, f"Points along the {name[1]} axis.") for name in names)


def images(edge: int, which: str) -> tuple[Parameter, ...]:
    """Return what networks for images have in common."""
    return (
        integer("image", edge, f"Edge length of the images in pixels, {which}."),
        integer("batch", 32, "Images in a batch."),
        integer("classes", 1000, "Number of classes."),
    )


def defaulting(parameters: tuple[Parameter, ...], **defaults: ParameterValue) -> tuple[Parameter, ...]:
    """Return parameters with other defaults."""
    return tuple(replace(p, default=defaults.get(p.name, p.default)) for p in parameters)
