"""The training step of a transformer as a task graph, kernel by kernel, over any number of micro-batches.

The kernels of one micro-batch are made once (`micro_batch`); tasks and values of all of them are rows that are made
when they are asked for, so that a million tasks take as little memory as one micro-batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from remat.generate import check
from remat.generate.document import SECONDS_AND_BYTES, Document, Rows, document
from remat.generate.networks.micro_batch import Kernel, MicroBatch
from remat.generate.networks.operations import BYTES, device
from remat.generate.networks.parameters import STATES, checked_speed, offloading_machine, update_traffic
from remat.generate.networks.transformer import PRESETS, SHAPE, architecture

PLACES = ("none", "static", "host")
GRADIENTS = ("none", "accumulate")


def transformer_step(
    *,
    preset: str = "gpt2-small",
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    sequence: int | None = None,
    vocabulary: int | None = None,
    feedforward: int | None = None,
    key_heads: int | None = None,
    dropout: bool | None = None,
    batch: int = 1,
    micro_batches: int = 1,
    dtype: str = "bf16",
    flash: bool = True,
    parameters: str = "none",
    gradients: str | None = None,
    optimizer: str = "adam",
    link: float = 12e9,
    host_speed: float = 1 / 16,
    flops: float | None = None,
    bandwidth: float | None = None,
) -> Document:
    """Return the training step of a transformer as a task graph: forward and backward of each micro-batch, in turns.

    Parameters
    ----------
    preset, layers, hidden, heads, sequence, vocabulary, feedforward, key_heads, dropout, dtype, flash
        As for `remat.generate.networks.transformer.transformer`.
    batch : int
        Sequences in a micro-batch.
    micro_batches : int
        Forwards and backwards before the parameters change.
    parameters : {"none", "static", "host"}
        Left out; bytes that always lie there; or values that begin and must end at the host, with updates that read
        their gradients and the optimizer's states, which lie there, too.
    gradients : {"none", "accumulate"}, optional
        Dropped as they come; or added up in place over the micro-batches: in buffers that are there from the start, or,
        with parameters at the host, in what the first micro-batch makes. Default: accumulate where parameters are at
        the host, else none.
    optimizer : {"adam", "sgd", "none"}
        What an update reads, where parameters are at the host.
    link, host_speed : float
        Bytes/s each way to the host, and its speed at updates (the device's is 1), where parameters are at the host.
    flops, bandwidth : float, optional
        Of the device; default an A100's.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; ``tasks`` and ``values`` are `Rows`.

    Raises
    ------
    ValueError
        A parameter out of range, sizes beyond 2^62 bytes, or more than 10^7 tasks.
    """
    check.choice("preset", preset, tuple(PRESETS))
    check.choice("dtype", dtype, tuple(BYTES))
    check.choice("parameters", parameters, PLACES)
    given = (layers, hidden, heads, sequence, vocabulary, feedforward, key_heads)
    model = architecture(preset, dict(zip(SHAPE, given, strict=True)), dropout)
    many = check.integer("batch", batch, minimum=1)
    machine = device(dtype, flops, bandwidth)
    once = MicroBatch(model, batch=many, element=BYTES[dtype], flash=flash, device=machine)
    step = _Step(
        once,
        check.integer("micro_batches", micro_batches, minimum=1),
        place=parameters,
        accumulated=_accumulated(parameters, gradients),
        state=STATES[check.choice("optimizer", optimizer, tuple(STATES))][BYTES[dtype] == 4],
        mixed=optimizer == "adam" and BYTES[dtype] == 2,
    )
    step.check()
    host = offloading_machine(check.number("link", link, positive=True), checked_speed(host_speed))
    return _document(step, host if step.host else None, preset, dtype)


def _document(step: _Step, host: Document | None, preset: str, dtype: str) -> Document:
    once = step.once
    made = document(
        kind="dag",
        name=_name(preset, dtype, step),
        description=f"{_described(once, dtype, step)}; published formulas, roofline times at "
        f"{once.device.flops / 1e12:g} TFLOP/s and {once.device.bandwidth / 1e12:g} TB/s",
        units=SECONDS_AND_BYTES,
        machine=host,
        static_memory=once.element * once.model.parameters if step.place == "static" else None,
        inputs=step.inputs(),
        outputs=step.outputs(),
        values=Rows(step.value_count, step.values),
        tasks=Rows(step.task_count, step.tasks),
    )
    if host and "speed" in host["processors"][1]:
        made["schema"] = "remat.instance/2"
    return made


def _accumulated(parameters: str, gradients: str | None) -> bool:
    if gradients is None:
        return parameters == "host"
    check.choice("gradients", gradients, GRADIENTS)
    if parameters == "host" and gradients == "none":
        raise ValueError("gradients none leave the updates of parameters at the host nothing to read; use accumulate")
    return gradients == "accumulate"


def _name(preset: str, dtype: str, step: _Step) -> str:
    once, model = step.once, step.once.model
    base = preset if model == PRESETS[preset] else f"transformer_l{model.layers}_h{model.hidden}"
    parts = [base, "step", f"m{step.count}", f"b{once.batch}", f"s{model.sequence}"]
    parts += [dtype, "flash" if once.flash else "scores"]
    parts += [] if step.place == "none" else [step.place]
    return "_".join(parts + (["accumulate"] if step.buffers else [])).replace("-", "_")


def _described(once: MicroBatch, dtype: str, step: _Step) -> str:
    model, attention = once.model, "flash attention" if once.flash else "attention scores stored"
    kept = {"none": "left out", "static": "static", "host": "at the host"}[step.place]
    return (
        f"Training step of a transformer, kernel by kernel: {model.layers} layers, hidden {model.hidden}, "
        f"{model.heads} heads, {step.count} micro-batches of {once.batch} x {model.sequence} tokens, vocabulary "
        f"{model.vocabulary}, {dtype}, {attention}, {model.parameters:,} parameters, {kept}, gradients "
        f"{'added up' if step.accumulated else 'dropped'}"
    )


class _Step:
    """All micro-batches, with parameters, gradients and updates around them."""

    def __init__(self, once: MicroBatch, count: int, *, place: str, accumulated: bool, state: int, mixed: bool) -> None:
        self.once, self.count, self.place, self.accumulated = once, count, place, accumulated
        self.state, self.mixed = state, mixed
        self.host = place == "host"
        # Buffers that are there from the start make all micro-batches alike; at the host's they would have to come.
        self.buffers = accumulated and not self.host
        self.makers: dict[str, list[str]] = {}
        for kernel in once.kernels:
            if kernel.gradient:
                self.makers.setdefault(kernel.gradient, []).append(kernel.name)
        single = {kernel.name for kernel in once.kernels if kernel.writes == (kernel.name,)}
        self.listed = {name: size for name, size in once.sizes.items() if name not in single}

    @property
    def task_count(self) -> int:
        """Tasks of all micro-batches, and the updates."""
        return self.count * len(self.once.kernels) + (len(self.once.parameters) if self.host else 0)

    @property
    def value_count(self) -> int:
        """Values that no task declares."""
        updated = (4 if self.state else 2) * len(self.once.parameters) if self.host else 0
        return self.count * len(self.listed) + (len(self.makers) if self.buffers else 0) + updated

    def check(self) -> None:
        """Refuse what is beyond the format's bounds."""
        check.integer("micro_batches", self.count, maximum=check.LARGEST_COUNT // len(self.once.kernels))
        own = self.once
        gradients = sum(self._gradient_size(name) * (len(makers) + 1) for name, makers in self.makers.items())
        shared = (2 * own.element + 2 * self.state) * sum(own.parameters.values())
        total = self.count * (sum(own.sizes.values()) + gradients) + shared
        check.total([total], "make the batch, the model or the number of micro-batches smaller")

    # --- values -------------------------------------------------------------------------------------------------------

    def _prefix(self, number: int) -> str:
        return f"m{number + 1}." if self.count > 1 else ""

    def _gradient_size(self, name: str) -> int:
        return self.once.element * self.once.gradients[name][1]

    def _gradients(self) -> list[str]:
        """Name the gradients as the last micro-batch leaves them."""
        return [self._prefix(self.count - 1) + makers[-1] for makers in self.makers.values()]

    def inputs(self) -> list[Any]:
        """Return token ids, and what lies there of parameters, states and gradients."""
        found: list[Any] = [f"{self._prefix(number)}ids" for number in range(self.count)]
        if self.host:
            found += [{"value": f"{letter}.{name}", "memory": "host"} for letter, name in self._shared()]
        if self.buffers:
            found += [f"buffer.{name}" for name in self.makers]
        return found

    def outputs(self) -> list[Any]:
        """Return the losses, and what must be there of parameters, states and gradients."""
        found: list[Any] = [f"{self._prefix(number)}loss" for number in range(self.count)]
        if self.host:
            found += [{"value": f"new.{letter}.{name}", "memory": "host"} for letter, name in self._shared()]
        return found + (self._gradients() if self.buffers else [])

    def _shared(self) -> Iterator[tuple[str, str]]:
        for name in self.once.parameters:
            yield "W", name
            if self.state:
                yield "O", name

    def values(self) -> Iterator[Document]:
        """Yield the rows of the values."""
        own = self.once
        if self.host:
            for letter, name in self._shared():
                size = own.parameters[name] * (own.element if letter == "W" else self.state)
                yield {"id": f"{letter}.{name}", "size": size}
                yield {"id": f"new.{letter}.{name}", "size": size}
        if self.buffers:
            yield from ({"id": f"buffer.{name}", "size": self._gradient_size(name)} for name in self.makers)
        for number in range(self.count):
            prefix = self._prefix(number)
            yield from ({"id": f"{prefix}{name}", "size": size} for name, size in self.listed.items())

    # --- tasks --------------------------------------------------------------------------------------------------------

    def tasks(self) -> Iterator[Document]:
        """Yield the rows of the tasks."""
        held: dict[str, str] = {name: f"buffer.{name}" for name in self.makers} if self.buffers else {}
        for number in range(self.count):
            prefix = self._prefix(number)
            waiting = self._kernels_of_gradients()
            for kernel in self.once.kernels:
                yield self._task(kernel, prefix, held)
                if not (self.host and number == self.count - 1 and kernel.gradient):
                    continue
                name = self.once.gradients[kernel.gradient][0]
                waiting[name] -= 1
                if not waiting[name]:
                    yield self._update(name, held)

    def _kernels_of_gradients(self) -> Counter[str]:
        """Count the kernels that make the gradients of each parameter."""
        counted: Counter[str] = Counter()
        for gradient, makers in self.makers.items():
            counted[self.once.gradients[gradient][0]] += len(makers)
        return counted

    def _task(self, kernel: Kernel, prefix: str, held: dict[str, str]) -> Document:
        """Return the task of a kernel; `held` names where each gradient is added up so far, and is changed."""
        name = prefix + kernel.name
        reads = [prefix + value for value in kernel.reads]
        task: Document = {"id": name, "time": kernel.time, "reads": reads}
        if kernel.weight and self.host:
            reads.append(f"W.{kernel.weight}")
        if kernel.gradient:
            task["size"] = self._gradient_size(kernel.gradient)
            if kernel.gradient in held:
                reads.append(held[kernel.gradient])
                task["in_place"] = True
            if self.accumulated:
                held[kernel.gradient] = name
        elif kernel.writes == (kernel.name,):
            task["size"] = self.once.sizes[kernel.name]
        else:
            task["writes"] = [prefix + value for value in kernel.writes]
        task["phase"] = kernel.phase
        return task

    def _update(self, name: str, held: dict[str, str]) -> Document:
        """Return the task that makes a parameter of its gradients, at the host or anywhere."""
        letters = "WO" if self.state else "W"
        reads = [held[gradient] for gradient in self.makers if self.once.gradients[gradient][0] == name]
        reads += [f"{letter}.{name}" for letter in letters if letter == "O" or not self.mixed]
        moved = update_traffic(self.once.element, self.state, mixed=self.mixed)
        return {
            "id": f"update.{name}",
            "time": moved * self.once.parameters[name] / self.once.device.bandwidth,
            "reads": reads,
            "writes": [f"new.{letter}.{name}" for letter in letters],
            "in_place": True,
            "once": True,
        }
