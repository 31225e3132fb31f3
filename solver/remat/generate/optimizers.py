"""Names of optimizers, and the temporary memory of their steps in PyTorch, for generators, plans and the bridges.

A name is that of an optimizer, such as ``adamw``, alone or with an implementation: ``adamw-foreach``, ``adamw-fused``,
``adamw-loop``. The plain name selects PyTorch's default on the device. The figures are those of the default options of
`torch.optim` (no weight decay that is added to gradients, no AMSGrad) and of the 8-bit optimizers of bitsandbytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remat.errors import OptionError

FOREACH_DEVICES = ("cuda", "xpu", "mtia")
"""Types of devices on which PyTorch's default handles all parameters together."""

FLOAT32 = 4
"""Bytes of a number in full precision."""

IMPLEMENTATIONS = ("foreach", "fused", "loop")


@dataclass(frozen=True, slots=True)
class Temporaries:
    """Temporary tensors of a step.

    Attributes
    ----------
    all : int
        Copies of all trained parameters.
    one : int
        Copies of the parameter that is being updated. One copy of the parameter before lingers, if there are any.
    element, narrow : int
        Bytes per element of the parameter that is being updated, and more of these if an element has fewer than four.
    """

    all: int = 0
    one: int = 0
    element: int = 0
    narrow: int = 0

    def bytes(self, sizes: list[int], elements: list[int]) -> int:
        """Return the most that a step takes for parameters of so many bytes and elements, in their order."""
        most = before = 0
        for size, count in zip(sizes, elements, strict=True):
            each = self.element + (self.narrow if size < FLOAT32 * count else 0)
            most = max(most, self.one * size + before + each * count)
            before = size if self.one else 0
        return self.all * sum(sizes) + most


NOTHING = Temporaries()


@dataclass(frozen=True, slots=True)
class Family:
    """An optimizer.

    Attributes
    ----------
    steps : mapping of str to Temporaries
        By implementation.
    states : int
        Tensors of a parameter's own size and type that it keeps.
    factored : bool
        Whether it keeps rows and columns for a matrix instead, and a tensor for a vector.
    eight_bit : bool
        Whether it keeps two states of eight bits instead.
    on_device, elsewhere : str
        PyTorch's default implementation on a device of `FOREACH_DEVICES`, and on others.
    """

    steps: Mapping[str, Temporaries]
    states: int = 0
    factored: bool = False
    eight_bit: bool = False
    on_device: str = "foreach"
    elsewhere: str = "loop"


_IN_PLACE = {"foreach": NOTHING, "fused": NOTHING, "loop": NOTHING}
_ADAM = {"foreach": Temporaries(all=1), "fused": NOTHING, "loop": Temporaries(one=2)}
_ADAFACTOR = {"foreach": Temporaries(all=1), "loop": Temporaries(one=1)}
_ADAM8 = {"fused": NOTHING, "loop": Temporaries(element=20, narrow=4)}

FAMILIES: Mapping[str, Family] = {
    "sgd": Family(_IN_PLACE),
    "momentum": Family(_IN_PLACE, states=1),
    "adam": Family(_ADAM, states=2),
    "adamw": Family(_ADAM, states=2),
    "adafactor": Family(_ADAFACTOR, factored=True, on_device="loop"),
    "adam8": Family(_ADAM8, eight_bit=True, on_device="fused"),
    "adamw8": Family(_ADAM8, eight_bit=True, on_device="fused"),
}
NAMES = tuple(FAMILIES)
SPELLED = "|".join(NAMES) + "[-foreach|-fused|-loop]"
"""The names as they appear in an option's help."""


@dataclass(frozen=True, slots=True)
class Named:
    """An optimizer with its implementation.

    Attributes
    ----------
    family : str
    implementation : str
        Empty for PyTorch's default.
    """

    family: str
    implementation: str = ""

    @property
    def known(self) -> Family:
        """The implementations of its family."""
        return FAMILIES[self.family]

    def on(self, device: str) -> str:
        """Return the implementation on a type of device."""
        default = self.known.on_device if device in FOREACH_DEVICES else self.known.elsewhere
        return self.implementation or default

    def temporaries(self, device: str) -> Temporaries:
        """Return what its step makes on a type of device."""
        return self.known.steps[self.on(device)]


def is_name(text: str) -> bool:
    """Whether a text begins with the name of an optimizer."""
    return text.partition("-")[0] in FAMILIES


def read_name(text: str) -> Named:
    """Read ``adamw`` or ``adamw-fused``.

    Raises
    ------
    OptionError
        If there is no such optimizer, or it has no such implementation.
    """
    family, _, implementation = text.partition("-")
    if family not in FAMILIES:
        raise OptionError(f"there is no {text!r}; known are {', '.join(NAMES)}", argument="optimizer")
    known = FAMILIES[family]
    if implementation not in ("", *known.steps) or text.endswith("-"):
        given = ", ".join(f"{family}-{name}" for name in known.steps)
        raise OptionError(f"there is no {text!r}; known are {family}, {given}", argument="optimizer")
    return Named(family, implementation)
