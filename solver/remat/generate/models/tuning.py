"""Fine-tuning of a model: adapters, frozen parameters, quantized matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import ceil
from typing import NamedTuple

from remat.generate import check
from remat.generate.models.architecture import Model, Weight
from remat.messages import brief

PACKED = {
    "nf4": 0.5 + 1 / 64 + 4 / (64 * 256),
    "int8": 1.0,
}
"""Bytes of a quantized parameter: 4 bits with doubly quantized scales of 64 (Dettmers et al. 2023), or 8 bits."""

ROW_SCALE = {"nf4": 0, "int8": 4}
"""Bytes for each output of a quantized matrix: its scale (Dettmers et al. 2022)."""

MOST_RANK = 65_536


class Treatment(NamedTuple):
    """The treatment of one group of parameters in fine-tuning.

    Attributes
    ----------
    trained : bool
        Whether the parameters of the group are trained.
    rank : int
        Rank of its adapter; 0: no adapter.
    packed : str
        Quantization; empty: none.
    """

    trained: bool = True
    rank: int = 0
    packed: str = ""

    def bytes(self, weight: Weight, element: int) -> int:
        """Bytes of the parameters, without the adapter."""
        if not self.packed:
            return weight.count * element
        matrices = weight.count - weight.biases
        scales = weight.copies * weight.columns * ROW_SCALE[self.packed]
        return ceil(PACKED[self.packed] * matrices) + scales + weight.biases * element

    def adapter(self, weight: Weight) -> int:
        """Parameters of the adapter."""
        return weight.copies * self.rank * (weight.rows + weight.columns)

    def trained_parameters(self, weight: Weight) -> int:
        """Parameters that are trained, of the weights or their adapter."""
        return weight.count if self.trained else self.adapter(weight)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The parameters that are trained.

    Attributes
    ----------
    rank : int
        Rank of adapters; 0: none. With adapters, everything else is frozen.
    targets : tuple of str
        Matrices that have adapters: the last part of their names (``q``, ``down``), or patterns of whole names; empty:
        every matrix of the blocks.
    frozen : tuple of str
        Patterns of names that are not trained.
    packed : str
        How frozen matrices of the blocks are stored: ``nf4``, ``int8``, or as they are.
    """

    rank: int = 0
    targets: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    packed: str = ""

    def of(self, name: str, weight: Weight) -> Treatment:
        """Return the treatment of the parameters of a full name."""
        rank = self.rank if self.rank and weight.linear and self._target(name) else 0
        trained = not self.rank and not any(fnmatchcase(name, pattern) for pattern in self.frozen)
        packed = self.packed if weight.linear and not trained else ""
        return Treatment(trained, rank, packed)

    def _target(self, name: str) -> bool:
        last = name.rpartition(".")[2]
        return not self.targets or any(last == each or fnmatchcase(name, each) for each in self.targets)

    @property
    def by_layer(self) -> bool:
        """Whether equal blocks may be treated differently."""
        return bool(self.frozen) or any("." in target or "*" in target for target in self.targets)

    def check(self, model: Model) -> None:
        """Refuse patterns and targets that name nothing, and a model of which nothing is trained."""
        names = dict(model.weights())
        for pattern in self.frozen:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ValueError(f"frozen {brief(pattern)} is not a parameter of the model; names are {_some(names)}")
        for target in self.targets:
            alone = Tuning(self.rank, (target,))
            if not any(weight.linear and alone._target(name) for name, weight in names.items()):
                known = dict.fromkeys(name.rpartition(".")[2] for name, weight in names.items() if weight.linear)
                raise ValueError(f"lora: {brief(target)} is not a matrix of the blocks; these are {', '.join(known)}")
        if not any(self.of(name, weight).trained_parameters(weight) for name, weight in names.items()):
            raise ValueError("frozen: every parameter is frozen, so there is nothing to train")
        if self.packed and not any(self.of(name, weight).packed for name, weight in names.items()):
            raise ValueError(f"quantize {self.packed} is of frozen matrices: give lora or frozen, too")


def read_tuning(lora: str, frozen: str, quantize: str) -> Tuning:
    """Read the texts of options.

    Parameters
    ----------
    lora : str
        ``rank=16``, or ``rank=16,q,v`` with targets; empty: no adapters. Names as in ``q_proj`` are known, too.
    frozen : str
        Patterns, separated by commas, such as ``embedding,layers.[0-9].*``.
    quantize : {"none", "nf4", "int8"}
    """
    rank = 0
    targets: tuple[str, ...] = ()
    if lora:
        first, *others = (part.strip() for part in lora.split(","))
        number = first.removeprefix("rank=")
        if not number.isdecimal() or not all(others):
            raise ValueError(f"lora is a rank and targets, such as rank=16 or rank=16,q,v, not {brief(lora)}")
        rank = check.integer("lora", int(number[:9]), minimum=1, maximum=MOST_RANK)
        targets = tuple(each.removesuffix("_proj") for each in others)
    patterns = tuple(part.strip() for part in frozen.split(",")) if frozen else ()
    if not all(patterns):
        raise ValueError(f"frozen is patterns of names, separated by commas, not {brief(frozen)}")
    packed = "" if quantize == "none" else check.choice("quantize", quantize, tuple(PACKED))
    return Tuning(rank, targets, patterns, packed)


def _some(names: Mapping[str, Weight]) -> str:
    shown = [name for name in names if ".1." not in name]
    return ", ".join([*shown[:4], "...", shown[-1]])
