"""Division of a pipeline's batch: micro-batches of several sizes, or sequences cut into slices of tokens.

An instance may leave either choice to the schedule. A schedule is computed for an instance in which the size or the
cut is fixed; see `PipelineInstance.of_samples` and `PipelineInstance.of_cut`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field

from remat.instance.fields import LARGEST_COUNT, Count, Many, Model, Size, fail
from remat.instance.layers import PHASE_TIMES, Layer, LayerWork

MOST_SLICES = 256
"""Maximum number of slices of one sequence: each waits for all slices before it."""

Before = Annotated[int, Field(strict=True, ge=0, le=LARGEST_COUNT)]


class SizeModel(Model):
    """Micro-batches of another size, with their own times and sizes; nothing is scaled."""

    samples: Count = Field(description="Number of samples of such a micro-batch.")
    layers: Annotated[
        tuple[LayerWork, ...],
        Field(min_length=1, description="Times and sizes of the instance's layers, in the same order."),
        Many,
    ]


class SliceWork(LayerWork):
    """Times and sizes of a layer for one slice of a sequence."""

    cache_gradient_size: Size = Field(
        default=0,
        description="Bytes of the gradients of keys and values, to which the backwards of later slices add.",
    )


class SliceModel(Model):
    """A slice of a sequence: `tokens` tokens after the first `before` tokens."""

    tokens: Count = Field(description="Number of tokens of the slice.")
    before: Before = Field(default=0, description="Number of tokens of the sequence before the slice.")
    layers: Annotated[
        tuple[SliceWork, ...],
        Field(min_length=1, description="Times and sizes of the instance's layers, in the same order."),
        Many,
    ]


class TokensModel(Model):
    """Slices of sequences; each slice reads the saved values of all earlier slices."""

    length: Count = Field(description="Number of tokens of a sequence.")
    slices: Annotated[tuple[SliceModel, ...], Field(min_length=1, description="Possible slices."), Many]
    cut: Annotated[tuple[Count, ...], Field(min_length=1, max_length=MOST_SLICES)] | None = Field(
        default=None,
        description="Tokens of each slice of every sequence, in order, where `micro_batches` counts slices; "
        "null: the schedule chooses.",
    )

    def of_cut(self, cut: Sequence[int]) -> list[SliceModel]:
        """Return the slices of a cut.

        Raises
        ------
        ValueError
            If it is not a cut of the sequence into listed slices; the message gives the reason.
        """
        known = {(one.tokens, one.before): one for one in self.slices}
        if len(cut) > MOST_SLICES:
            raise ValueError(f"{len(cut):,} slices; at most {MOST_SLICES} are allowed")
        if sum(cut) != self.length:
            raise ValueError(f"the slices have {sum(cut):,} tokens in all, and a sequence has {self.length:,}")
        found: list[SliceModel] = []
        before = 0
        for tokens in cut:
            if (tokens, before) not in known:
                raise ValueError(f"no slice of {tokens:,} tokens after {before:,} is given")
            found.append(known[tokens, before])
            before += tokens
        return found


def check_sizes(sizes: Sequence[SizeModel], own: int, micro_batches: int, layers: Sequence[Layer]) -> None:
    """Reject sizes that do not divide the batch, are repeated, or do not match the layers."""
    total = own * micro_batches
    seen = {own}
    for index, size in enumerate(sizes):
        at = f".sizes[{index}]"
        if size.samples in seen:
            what = "that of `layers`" if size.samples == own else "given twice"
            raise fail(f"the size {size.samples:,} is {what}", f"{at}.samples")
        if total % size.samples:
            raise fail(
                f"{total:,} samples ({micro_batches:,} micro-batches of {own:,}) are not a multiple of "
                f"{size.samples:,}",
                f"{at}.samples",
            )
        seen.add(size.samples)
        check_works(size.layers, layers, at)


def check_parts(parts: Sequence[SizeModel], own: int, layers: Sequence[Layer]) -> None:
    """Reject parts that do not divide a micro-batch, are repeated, or do not match the layers."""
    seen: set[int] = set()
    for index, part in enumerate(parts):
        at = f".parts[{index}]"
        if part.samples >= own or own % part.samples:
            raise fail(f"{part.samples:,} samples are not a part of a micro-batch of {own:,}", f"{at}.samples")
        if part.samples in seen:
            raise fail(f"the part of {part.samples:,} is given twice", f"{at}.samples")
        seen.add(part.samples)
        check_works(part.layers, layers, at)


def check_tokens(tokens: TokensModel, micro_batches: int, layers: Sequence[Layer]) -> None:
    """Reject slices that are repeated or do not match the sequence or the layers, and invalid cuts."""
    seen: set[tuple[int, int]] = set()
    for index, one in enumerate(tokens.slices):
        at = f".tokens.slices[{index}]"
        if one.tokens + one.before > tokens.length:
            end = one.tokens + one.before
            raise fail(f"the slice ends at token {end:,}, and a sequence has {tokens.length:,}", at)
        if (one.tokens, one.before) in seen:
            raise fail(f"the slice of {one.tokens:,} tokens after {one.before:,} is given twice", at)
        seen.add((one.tokens, one.before))
        check_works(one.layers, layers, at)
    if tokens.cut is not None:
        try:
            tokens.of_cut(tokens.cut)
        except ValueError as error:
            raise fail(f"{error}", ".tokens.cut") from None
        if micro_batches % len(tokens.cut):
            raise fail(
                f"{micro_batches:,} micro-batches are not a whole number of sequences of {len(tokens.cut)} slices",
                ".micro_batches",
            )


def check_works(works: Sequence[LayerWork], layers: Sequence[Layer], at: str) -> None:
    """Reject works whose number differs from that of the layers, or that run on other types of devices."""
    if len(works) != len(layers):
        raise fail(f"{len(works):,} entries, and the instance has {len(layers):,} layers", f"{at}.layers")
    for index, (work, layer) in enumerate(zip(works, layers, strict=True)):
        check_work(work, layer, f"{at}.layers[{index}]")


def check_work(work: LayerWork, layer: Layer, where: str) -> None:
    """Reject a work that does not match the layer, or runs on other types of devices."""
    if work.is_split != layer.is_split:
        has, other = ("a", "none") if work.is_split else ("no", "one")
        raise fail(f"this has {has} weight_time, and the layer has {other}", where)
    if work.weight_saved_size and not work.is_split:
        raise fail("only a layer with a weight_time keeps something for it", f"{where}.weight_saved_size")
    if work.paired_time is not None:
        raise fail("the time of two operations at once is given for the instance's own layers only", where)
    if able(work) != able(layer):
        raise fail("this runs on other types of devices than the layer", where)


def able(work: LayerWork) -> frozenset[str] | None:
    """Return the types of devices that can run a work; None: all."""
    listed = [frozenset(time) for key in PHASE_TIMES if isinstance(time := getattr(work, key), dict)]
    return frozenset.intersection(*listed) if listed else None


def with_work(layers: Iterable[Layer], works: Iterable[LayerWork]) -> tuple[Layer, ...]:
    """Return the layers with other times and sizes; these contain no tensor-parallel variants."""
    names = LayerWork.model_fields
    return tuple(
        layer.model_copy(update={name: getattr(work, name) for name in names} | {"tensor": {}})
        for layer, work in zip(layers, works, strict=True)
    )


def works_of(layers: Iterable[LayerWork]) -> tuple[LayerWork, ...]:
    """Return the times and sizes of layers, without parameters, optimizer states and paired times."""
    names = [name for name in LayerWork.model_fields if name != "paired_time"]
    return tuple(LayerWork.model_construct(**{name: getattr(layer, name) for name in names}) for layer in layers)


def least_work(layer: Layer, ways: Sequence[tuple[int, LayerWork]]) -> Layer:
    """Return a layer with the minimum of several works: each time multiplied by its work's count, and each size."""
    least: dict[str, object] = {}
    for name in PHASE_TIMES:
        times = [(count, getattr(work, name)) for count, work in ways]
        if any(isinstance(time, dict) for _, time in times):
            every = [(count, {"": time} if not isinstance(time, dict) else time) for count, time in times]
            types = {kind for _, time in every for kind in time if kind}
            least[name] = {
                kind: min(count * time.get(kind, time.get("", 0)) for count, time in every) for kind in types
            }
        else:
            least[name] = min(count * time for count, time in times)
    for name in ("output_size", "saved_size", "weight_saved_size", "forward_workspace", "backward_workspace"):
        least[name] = min(getattr(work, name) for _, work in ways)
    least["gradient_size"] = min(work.gradient_bytes for _, work in ways)
    return layer.model_copy(update=least)
