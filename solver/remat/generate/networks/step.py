"""Training steps that repeat one micro-batch, with parameters, gradients and updates around it.

The kernels of one micro-batch are created once. Tasks and values of all micro-batches are lazy rows, so a million
tasks take no more memory than one micro-batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from remat.generate import check
from remat.generate.document import SECONDS_AND_BYTES, Document, Rows, document
from remat.generate.networks.micro_batch import MicroBatch
from remat.generate.networks.parameters import STATES, checked_speed, offloading_machine, update_traffic

PLACES = ("none", "static", "host")
GRADIENTS = ("none", "accumulate")
MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting of the micro-batches: the parameters of the families, unchecked."""

    micro_batches: int
    parameters: str
    gradients: str | None
    optimizer: str
    link: float
    host_speed: float


def training_step(once: MicroBatch, setting: Setting, *, base: str, what: str, dtype: str) -> Document:
    """Return the training step that repeats a micro-batch.

    Parameters
    ----------
    once : MicroBatch
    setting : Setting
    base, what : str
        What the name and the description begin with.
    dtype : str

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; ``tasks`` and ``values`` are `Rows`.

    Raises
    ------
    ValueError
        A parameter out of range, sizes beyond 2^62 bytes, or more than 10^7 tasks.
    """
    optimizer = check.choice("optimizer", setting.optimizer, tuple(STATES))
    step = Step(
        once,
        check.integer("micro_batches", setting.micro_batches, minimum=1),
        place=check.choice("parameters", setting.parameters, PLACES),
        accumulated=_accumulated(setting.parameters, setting.gradients),
        state=STATES[optimizer][once.element == 4],
        mixed=optimizer == "adam" and once.element == 2,
    )
    step.check()
    link = check.number("link", setting.link, positive=True)
    host = offloading_machine(link, checked_speed(setting.host_speed)) if step.host else None
    made = document(
        kind="dag",
        name=_name(base, dtype, step),
        description=_described(what, dtype, step),
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


def _name(base: str, dtype: str, step: Step) -> str:
    once = step.once
    parts = [base, "step", f"m{step.count}", f"b{once.batch}", f"s{once.model.sequence}"]
    parts += [dtype, "flash" if once.flash else "scores"]
    parts += [] if step.place == "none" else [step.place]
    return "_".join(parts + (["accumulate"] if step.buffers else [])).replace("-", "_")


def _described(what: str, dtype: str, step: Step) -> str:
    once, model = step.once, step.once.model
    attention = "flash attention" if once.flash else "attention scores stored"
    kept = {"none": "left out", "static": "static", "host": "at the host"}[step.place]
    return (
        f"{what}, one training step, kernel by kernel: {model.layers} layers, hidden {model.hidden}, {model.heads} "
        f"heads, {step.count} x {once.batch} x {model.sequence} tokens, vocabulary {model.vocabulary}, {dtype}, "
        f"{attention}, {model.parameters:,} parameters, {kept}, gradients "
        f"{'added up' if step.accumulated else 'dropped'}; published formulas, roofline times at "
        f"{once.device.flops / 1e12:g} TFLOP/s and {once.device.bandwidth / 1e12:g} TB/s"
    )


class Step:
    """All micro-batches, with parameters, gradients and updates around them."""

    def __init__(self, once: MicroBatch, count: int, *, place: str, accumulated: bool, state: int, mixed: bool) -> None:
        self.once, self.count, self.place, self.accumulated = once, count, place, accumulated
        self.state, self.mixed = state, mixed
        self.host = place == "host"
        # Buffers that are there from the start make all micro-batches alike; at the host's they would have to come.
        self.buffers = accumulated and not self.host
        self.makers, self.listed = once.makers(), once.listed()

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
        """Refuse instances beyond the format's bounds."""
        check.integer("micro_batches", self.count, maximum=check.LARGEST_COUNT // len(self.once.kernels))
        own = self.once
        gradients = sum(own.gradient_size(name) * (len(makers) + 1) for name, makers in self.makers.items())
        shared = (2 * own.element + 2 * self.state) * sum(own.parameters.values())
        total = self.count * (sum(own.sizes.values()) + gradients) + shared
        check.total([total], "make the batch, the model or the number of micro-batches smaller")

    # --- values -------------------------------------------------------------------------------------------------------

    def _prefix(self, number: int) -> str:
        return f"m{number + 1}." if self.count > 1 else ""

    def _gradients(self) -> list[str]:
        """Name the gradients as the last micro-batch leaves them."""
        return [self._prefix(self.count - 1) + makers[-1] for makers in self.makers.values()]

    def inputs(self) -> list[Any]:
        """Return token ids, and the resident parameters, states and gradients."""
        found: list[Any] = [f"{self._prefix(number)}ids" for number in range(self.count)]
        if self.host:
            found += [{"value": f"{letter}.{name}", "memory": "host"} for letter, name in self._shared()]
        if self.buffers:
            found += [f"buffer.{name}" for name in self.makers]
        return found

    def outputs(self) -> list[Any]:
        """Return the losses, and the parameters, states and gradients that must be present at the end."""
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
            yield from ({"id": f"buffer.{name}", "size": self.once.gradient_size(name)} for name in self.makers)
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
                yield self.once.task(kernel, prefix, held, added=self.accumulated, placed=self.host)
                if not (self.host and number == self.count - 1 and kernel.gradient):
                    continue
                name = self.once.gradients[kernel.gradient][0]
                waiting[name] -= 1
                if not waiting[name]:
                    yield self._update(name, held)

    def _kernels_of_gradients(self) -> Counter[str]:
        """Count the kernels that compute the gradients of each parameter."""
        counted: Counter[str] = Counter()
        for gradient, makers in self.makers.items():
            counted[self.once.gradients[gradient][0]] += len(makers)
        return counted

    def _update(self, name: str, held: dict[str, str]) -> Document:
        """Return the task that updates a parameter from its gradients, at the host or anywhere."""
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
