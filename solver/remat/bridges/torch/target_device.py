"""Steps for an absent device: the operators of CUDA in a graph that is traced on the CPU.

PyTorch cannot trace CUDA operators without CUDA. Most operators are the same on both devices. For the others, these
rules apply before and after AOTAutograd traces the graph of Dynamo:

- attention becomes the kernel that PyTorch chooses on CUDA with its default settings: flash for 16-bit numbers without
  a mask; otherwise the memory-efficient kernel if keys have as many heads as queries; otherwise products and a softmax;
- mean and deviation of layer normalisation have full precision;
- ``torch.autocast("cuda")`` in the module is that of the CPU, which casts matrix products, convolutions and attention
  alike.

A plan names the tasks of this graph; `portable` describes a task independently of the device, so that tasks of the two
devices are matched in their order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remat.bridges.torch.recording import Held, Node, Recording, TorchError
from remat.bridges.torch.shim import torch
from remat.errors import OptionError
from remat.generate.devices import devices, platform

if TYPE_CHECKING:
    from remat.bridges.torch.capture import Captured

TARGETS = ("cpu", "cuda")
SIXTEEN_BIT = ("float16", "bfloat16")
WIDEST_HEAD = 256
FLASH_HEADS, EFFICIENT_MASKS = 8, 16
"""Multiples to which PyTorch pads the heads of flash attention, and the rows of masks of memory-efficient attention."""
LAYER_NORM = "aten.native_layer_norm.default"
ATTENTION = re.compile(r"aten\._scaled_dot_product_\w*attention\w*?(_backward)?\.default")


def device_of(captured: Captured) -> str:
    """Return the type of the device of a step: its target, or that of its first input that is not on the CPU."""
    if captured.target:
        return captured.target
    nodes = captured.graph.graph.find_nodes(op="placeholder")
    held = (node.meta.get("val") for node in nodes)
    types = (str(tensor.device.type) for tensor in held if isinstance(tensor, torch.Tensor))
    return next((kind for kind in types if kind != "cpu"), "cpu")


def target_of(target: str | None, costs: Any) -> str:
    """Return the device to plan for: the named one, else that of a roofline; empty for that of the inputs."""
    if target not in (None, *TARGETS):
        raise OptionError(f"there is no {target!r}; known are {', '.join(TARGETS)}", argument="target")
    if target is not None:
        return target
    if isinstance(costs, str) and costs.startswith("roofline:"):
        named = costs.removeprefix("roofline:")
        known = next((name for name in (named, named.rpartition("-")[0]) if name in devices()), None)
        if known is not None and platform(known) == "cuda":
            return "cuda"
    return ""


def is_mapped(target: str) -> bool:
    """Whether operators of a device must be mapped, because the device is absent."""
    return target == "cuda" and not torch.cuda.is_available()


def check_here(target: str) -> None:
    """Refuse to run operators of an absent device."""
    if is_mapped(target):
        raise TorchError(
            f"{target} is absent, so operators cannot run on it or be measured; costs='roofline:H100-bf16', for "
            "example, or a file of measurements gives times"
        )


# --------------------------------------------------------------------------------------------- before AOTAutograd


def map_operators(graph: Any) -> None:
    """Replace operators of a graph of Dynamo's, in place, by those that CUDA would run."""
    for node in list(graph.graph.nodes):
        if node.op != "call_function":
            continue
        name = getattr(node.target, "__name__", "")
        if name == "scaled_dot_product_attention":
            node.target = cuda_attention
        elif name == "_enter_autocast" and node.args[:1] == ("cuda",):
            node.args = ("cpu", *node.args[1:])
    graph.recompile()


def cuda_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attend as `torch.nn.functional.scaled_dot_product_attention` does on CUDA."""
    aten = torch.ops.aten
    kernel = _kernel(query, key, value, attn_mask, is_causal=is_causal, enable_gqa=enable_gqa)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    if kernel == "flash":
        width = query.shape[-1]
        padded = [_padded(part, FLASH_HEADS) for part in (query, key, value)]
        made = aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, scale=scale)[0]
        return made[..., :width] if width % FLASH_HEADS else made
    if kernel == "efficient":
        bias = None if attn_mask is None else _bias(attn_mask, query, key)
        taken = (query, key, value, bias, True, dropout_p, is_causal)
        return aten._scaled_dot_product_efficient_attention(*taken, scale=scale)[0]
    given = {"scale": scale, "enable_gqa": enable_gqa}
    return aten._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, None, **given)[0]


def _kernel(query: Any, key: Any, value: Any, mask: Any, *, is_causal: bool, enable_gqa: bool) -> str:
    """Return the kernel that PyTorch chooses on CUDA."""
    if any(part.dim() != 4 for part in (query, key, value)):
        return "math"
    same_heads = query.shape[1] == key.shape[1] == value.shape[1]
    narrow = query.shape[-1] == key.shape[-1] == value.shape[-1] <= WIDEST_HEAD
    square = query.shape[-2] == key.shape[-2] or not is_causal
    if query.dtype in (torch.float16, torch.bfloat16) and mask is None and narrow and square:
        return "flash" if same_heads or enable_gqa else "math"
    known = query.dtype in (torch.float16, torch.bfloat16, torch.float32)
    return "efficient" if known and same_heads and not (mask is not None and mask.requires_grad) else "math"


def _padded(tensor: Any, multiple: int) -> Any:
    """Return a tensor whose rows are padded to a multiple of `multiple` numbers."""
    missing = -tensor.shape[-1] % multiple
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def _bias(mask: Any, query: Any, key: Any) -> Any:
    """Return a mask as the bias that memory-efficient attention adds to the scores."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask.logical_not(), -math.inf)
    length = mask.shape[-1]
    mask = _padded(mask, EFFICIENT_MASKS)[..., :length]
    return mask.expand(*query.shape[:2], query.shape[-2], key.shape[-2])


# --------------------------------------------------------------------------------------------- after it


def map_statistics(recording: Recording) -> Recording:
    """Return a recording in which the statistics of layer normalisation have full precision."""
    wide = {
        held.storage
        for node in recording.nodes
        if node.operator == LAYER_NORM
        for held in node.tensors[1:]
        if held is not None and held.dtype in SIXTEEN_BIT
    }
    if not wide:
        return recording
    sizes = tuple(2 * size if index in wide else size for index, size in enumerate(recording.storages))
    nodes = tuple(
        replace(node, tensors=tuple(_widened(held, wide) for held in node.tensors)) for node in recording.nodes
    )
    return replace(recording, nodes=nodes, storages=sizes)


def _widened(held: Held | None, wide: set[int]) -> Held | None:
    return replace(held, dtype="float32") if held is not None and held.storage in wide else held


def mapped_operators(recording: Recording) -> Mapping[str, int]:
    """Count the operators that replace those of the CPU."""
    found: dict[str, int] = {}
    for node in recording.nodes:
        if (ATTENTION.fullmatch(node.operator) and "backward" not in node.operator) or node.operator == LAYER_NORM:
            found[node.operator] = found.get(node.operator, 0) + 1
    return found


def portable(node: Node) -> str:
    """Describe an operator independently of its device: attention by its results only."""
    shapes = [f"{held.dtype}{list(held.shape)}" for held in node.tensors if held is not None]
    attention = ATTENTION.fullmatch(node.operator)
    if attention is not None:
        return f"attention{attention[1] or ''} -> {shapes[0]}"
    if node.operator == LAYER_NORM:
        return f"{node.operator} -> {shapes[0]}"
    arguments = re.sub(r"#\d+", "#", node.arguments)
    arguments = re.sub(r"\b(device=)?(cpu|cuda(:\d+)?)\b", "device", arguments)
    return f"{node.operator}{arguments} -> {shapes}"
