"""Changes of options with which a training step fits, for `remat fit CONFIG`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from time import monotonic
from typing import TYPE_CHECKING, Any

from remat.errors import QuantityError, RematError
from remat.generate.models.chains import chain, link_of, network_of, training_of, workload_of
from remat.generate.models.memory import Estimate, estimate
from remat.generate.networks.parameters import States
from remat.generate.options import flag
from remat.report.text.model_memory import Remedy, blocks_of, exchanges, shown_size, time_of
from remat.units import format_size, parse_size, size_to_paste

if TYPE_CHECKING:
    from remat.generate.models.architecture import Model
    from remat.plugin.selection import Candidate
    from remat.solving.result import Result

Changes = dict[str, Any]

CHEAP: Changes = {"loss_chunks": 16, "step": "fused"}
"""Options that save memory and change no result; each is tried with every other change."""

SAME = "the same training"
EARLY = "each layer is updated right after its backward"
BY_LAYER = f"{EARLY}, so no clipping by the norm of all gradients"
HOST = f"a host; {BY_LAYER}"
LARGER_HOST = f"a larger host; {BY_LAYER}"
ACTIVATIONS = "a host for activations; parameters, gradients and optimizer states stay on the device"
LARGER_ACTIVATIONS = "a larger host for activations"
OTHER = "a changed training"
DEVICES = "more devices"

RANKS = (2, 4, 8, 16, 32, 64, 128, 256)

HOST_SECONDS = 60.0
"""Time limit of the solves behind a line about the host, as that of `auto`: they end by their work limits before."""


@dataclass(frozen=True, slots=True)
class Offloaded(Remedy):
    """Offloading to a host.

    Attributes
    ----------
    at_host : int
        Bytes at the host.
    in_torch : str
        The command that plans a PyTorch module in this way; may be empty.
    changes : mapping
        The changed options of the instance.
    """

    at_host: int = 0
    in_torch: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def split(self) -> str:
        """The bytes on the device and at the host, in words."""
        host = f", {shown_size(self.at_host)} at the host" if self.at_host else ""
        return f"{shown_size(self.needed)} on the device{host}"

    @property
    def enough(self) -> str:
        """What is enough, where the bytes then are, and what that costs, in words."""
        alone = f"it does if {EARLY}" if self.kind == BY_LAYER else "remat solve finds a schedule"
        what = f"a host of {shown_size(self.at_host)} is enough" if self.at_host else alone
        return f"{what}: {self.split}, {self.cost}"

    @property
    def further(self) -> tuple[str, ...]:
        """The commands that find the schedule, and the one that plans in PyTorch."""
        label = "plan that PyTorch runs, all states at the host in the type of the parameters"
        return self.commands + ((f"{label}: {self.in_torch}",) if self.in_torch else ())


def remedies_of(
    model: Model, asked: Mapping[str, Any], available: int, generating: str, host: int | None = None
) -> tuple[Remedy, ...]:
    """Return changes with which the step fits into so many bytes, by kind and then by extra time.

    Changes that keep the training as it is come first, then a host, then changes of the training's arithmetic, then
    more devices. Of each change, the fastest combination with `CHEAP` options is listed.

    Parameters
    ----------
    model, asked, available
        The model, its options, and the bytes of the device without the reserve.
    generating : str
        The command that makes an instance with the options asked for.
    host : int, optional
        Bytes of the host. If offloading needs more, a larger host is listed after everything else.
    """

    def best(change: Changes) -> tuple[Changes, Estimate] | None:
        return _best(model, asked, available, change)

    reserve = int(asked["reserve"])
    same = [_remedy(SAME, "", found, reserve) for found in [best({})] if found is not None]
    hosted, larger = _at_hosts(model, asked, available, generating, host)
    other = [
        _remedy(OTHER, note, found, reserve)
        for note, change in _other_trainings(asked)
        if (found := best(change)) is not None
    ]
    ranks = ({"data": ranks, "zero": 3} for ranks in RANKS if ranks > asked["data"])
    more = next((found for change in ranks if (found := best(change)) is not None), None)
    between = "" if more is None else exchanges(more[1], network_of(asked))
    devices = [] if more is None else [_remedy(DEVICES, between, more, reserve)]
    return tuple(
        remedy for kind in (same, hosted, other, devices, larger) for remedy in sorted(kind, key=lambda one: one.share)
    )


def _other_trainings(asked: Mapping[str, Any]) -> Iterator[tuple[str, Changes]]:
    """Yield changes of the training's arithmetic, each with its words."""
    optimizer, _, _ = asked["optimizer"].partition("-")
    if asked["precision"] == "mixed" and asked["dtype"] != "fp32" and optimizer != "none":
        packed_states = optimizer.endswith(("8", "4"))
        note = "no fp32 copy of the parameters" if packed_states else f"optimizer states in {asked['dtype']}"
        yield note, {"precision": "pure", "master": None}
    if optimizer in ("adam", "adamw") and asked["precision"] == "mixed":
        yield "optimizer states of 8 bits", {"optimizer": f"{optimizer}8", "step": None}
    packed: Changes = {"quantize": "nf4"}
    if asked["lora"] or asked["frozen"]:
        if asked["quantize"] == "none":
            yield "frozen matrices of 4 bits", packed
        return
    adapters: Changes = {"lora": "rank=16"}
    yield "only adapters are trained", adapters
    yield "only adapters are trained, frozen matrices of 4 bits", adapters | packed


def _best(model: Model, asked: Mapping[str, Any], available: int, change: Changes) -> tuple[Changes, Estimate] | None:
    """Return the fastest combination of a change with cheap options that fits, of equally fast ones the smallest."""
    cheap = [{}, *({name: value} for name, value in CHEAP.items() if asked[name] != value)]
    pairs = {tuple(sorted((one | other).items())): one | other for one, other in product(cheap, repeat=2)}
    found: list[tuple[float, int, int, Changes, Estimate]] = []
    for place, more in enumerate(sorted(pairs.values(), key=len)):
        options = dict(asked) | change | more
        new = {name: value for name, value in (change | more).items() if value != asked[name]}
        try:
            one = estimate(workload_of(model, options), training_of(options), available)
        except ValueError:  # options that exclude each other
            continue
        if new and one.chosen is not None:
            found.append((one.total_time + one.chosen.time, len(new), place, new, one))
    return None if not found else min(found, key=lambda each: each[:3])[3:]


def _remedy(kind: str, note: str, found: tuple[Changes, Estimate], reserve: int) -> Remedy:
    changes, one = found
    assert one.chosen is not None
    blocks = blocks_of(one.chosen, one.blocks)
    return Remedy(
        kind=kind,
        options=_written({name: value for name, value in changes.items() if value is not None}),
        note=note,
        needed=one.needed(one.chosen) + reserve,
        share=one.chosen.time / one.total_time,
        time=time_of(one, one.chosen),
        recomputed=f"{blocks} recomputed" if blocks else "",
    )


def _written(changes: Mapping[str, Any]) -> str:
    shown = {name: f"{value / 1e9:g}GB/s" if name == "link" else value for name, value in changes.items()}
    return " ".join(f"{flag(name)} {value}" for name, value in shown.items())


# ------------------------------------------------------------------------------------------------- the host


def _at_hosts(
    model: Model, asked: Mapping[str, Any], available: int, generating: str, host: int | None
) -> tuple[list[Offloaded], list[Offloaded]]:
    """Return the remedy at the host, and the one at a larger host if the host is too small."""
    own = _at_the_host(model, asked, available, generating, host)
    if own is not None:
        return [own], []
    larger = None if host is None else _at_the_host(model, asked, available, generating, None)
    if larger is None:
        return [], []
    return [], [replace(larger, kind=LARGER_ACTIVATIONS if larger.kind == ACTIVATIONS else LARGER_HOST)]


HOMES: tuple[Changes, ...] = ({"parameters": "any", "states": "any"}, {"parameters": "host"})
"""Memories of parameters and states, in the order of trying: where a schedule places them, or all at the host."""


def _homes(model: Model, asked: Mapping[str, Any]) -> tuple[Changes, ...]:
    """Return the changes that offload: of parameters and states or, if they are static, of activations alone."""
    if not why_static(model, asked):
        return HOMES
    return () if why_no_offloading(model, asked) else ({"link": link_of(asked)},)


def _at_the_host(
    model: Model, asked: Mapping[str, Any], available: int, generating: str, host: int | None
) -> Offloaded | None:
    """Return the best schedule that the algorithms of `auto` find with parameters or states at the host."""
    chunks, deadline = CHEAP["loss_chunks"], monotonic() + HOST_SECONDS
    more = {} if asked["loss_chunks"] >= chunks else {"loss_chunks": chunks}
    for homes in _homes(model, asked):
        change = homes | more
        try:
            found = _solved(model, dict(asked) | change, available, host, deadline)
        except (ValueError, RematError):  # options that exclude each other
            return None
        if found is not None:
            return _offloaded(found, asked, change, available, generating, host)
    return None


def _offloaded(
    found: Result, asked: Mapping[str, Any], change: Changes, available: int, generating: str, host: int | None
) -> Offloaded:
    """Return a schedule as a remedy, with the commands that find it."""
    from remat.report.text.run_times import overhead_line

    assert found.report is not None
    assert found.overhead is not None
    link, at_host = link_of(asked), found.report.peaks["host"].size
    is_static, budget = "parameters" not in change, _typed(available + int(asked["reserve"]))
    options, commands = _commands(asked, change, budget, generating, host)
    note = f"{link / 1e9:g} GB/s to the host"
    if not is_static:
        speed = _host_speed(asked)
        note += f", which updates at {speed:g} of the device's speed" if speed else ", which updates nothing"
    several = asked["data"] > 1
    runs = sum(row.decision == "recomputed" for row in found.stage_decisions)
    return Offloaded(
        kind=ACTIVATIONS if is_static else HOST if at_host else BY_LAYER,
        options=options,
        note=note + (f", both of one rank; exchanges at {network_of(asked) / 1e9:g} GB/s" if several else ""),
        needed=found.report.peaks["device"].size,
        share=found.overhead,
        time=overhead_line(found, found.report)[1],
        recomputed=f"{runs} of {len(found.stage_decisions)} stages recomputed" if runs else "",
        commands=commands,
        at_host=at_host,
        changes=change,
        in_torch=_in_torch(asked, budget, host or at_host, link) if "states" in change and not several else "",
    )


def _commands(
    asked: Mapping[str, Any], change: Changes, budget: str, generating: str, host: int | None
) -> tuple[str, tuple[str, str]]:
    """Return the changed options, and the commands that make and solve the instance that offloads."""
    options = _written({name: value for name, value in change.items() if value != asked[name]})
    budgets = f"-b device={budget}" + ("" if host is None else f" -b host={_typed(host)}")
    make = " ".join(filter(None, (generating, options, "-o step.json")))
    return options, (make, f"remat solve step.json {budgets}")


def unneeded_host(model: Model, asked: Mapping[str, Any], available: int, generating: str, host: int) -> str:
    """Return a remark on a host that a step with recomputation does not need, with commands; empty if none offloads."""
    homes = _homes(model, asked)
    if not homes:
        return ""
    _, commands = _commands(asked, homes[0], _typed(available + int(asked["reserve"])), generating, host)
    return f"no host is needed, but with one, a step may recompute less: {'; '.join(commands)}"


def of_values(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a chain whose parameters are values: a single rank has no network."""
    return {
        name: value for name, value in asked.items() if name != "config" and (name != "network" or asked["data"] > 1)
    }


def why_no_offloading(model: Model, asked: Mapping[str, Any]) -> str:
    """Return why no instance of these options offloads anything; empty if one does."""
    why = why_static(model, asked)
    if why and asked["data"] > 1:
        return f"{why}, and times of static parameters are without the exchanges between ranks"
    return why and _refusal(model, asked, link=link_of(asked))


def why_static(model: Model, asked: Mapping[str, Any]) -> str:
    """Return why no instance of these options offloads parameters and states; empty if one does."""
    return _refusal(model, asked, parameters="any", states="any")


def _refusal(model: Model, asked: Mapping[str, Any], **change: Any) -> str:
    """Return why the changed options make no chain; empty if they do."""
    given: dict[str, Any] = {**of_values(asked), "config": model, **change}
    try:
        chain(**given)
    except ValueError as error:
        return str(error)
    return ""


def _host_speed(asked: Mapping[str, Any]) -> float:
    """Return the speed of updates at the host, relative to the device."""
    given = asked.get("host_speed")
    return States.host_speed if given is None else float(given)


def _in_torch(asked: Mapping[str, Any], budget: str, host: int, link: float) -> str:
    """Return the command that plans a PyTorch module with the states of its optimizer at the host."""
    size = size_to_paste(host, up=True).replace(" ", "")
    at_host = f"--host {size} --link {link / 1e9:g}GB/s --optimizer-memory host"
    costs = f"--costs roofline:{asked['device']}-{asked['dtype']}"
    return f"remat fit torch MODULE:FACTORY {costs} --budget {budget} --optimizer {asked['optimizer']} {at_host}"


def _typed(size: int) -> str:
    """Return a size as an option takes it, without loss."""
    for text in (format_size(size), format_size(size, both=True).partition(" (")[0]):
        try:
            if parse_size(text) == size:
                return text.replace(" ", "")
        except QuantityError:  # rounded: no whole number of bytes
            continue
    return str(size)


def _solved(
    model: Model, options: Mapping[str, Any], available: int, host: int | None, deadline: float
) -> Result | None:
    """Return the fastest schedule of the algorithms that `auto` runs for an instance; None if there is none.

    They run with the work limits that they have in `auto`, so that a solve of the instance finds no slower schedule.
    """
    import remat
    from remat.plugin import selection
    from remat.solving.problem_setup import make_problem

    given: dict[str, Any] = {**of_values(options), "config": model}
    instance = remat.load(chain(**given))
    budget = {"device": available + int(options["reserve"]), "host": host}
    problem = make_problem(instance, budget=budget)
    if problem.exceeded is not None:
        return None

    def ask(listed: tuple[Candidate, ...]) -> list[Result]:
        found: list[Result] = []
        for place, one in enumerate(listed):
            seconds = (deadline - monotonic()) / (len(listed) - place)
            if seconds <= 0 or any(result.status == "optimal" for result in found):
                break
            name = one.algorithm.name
            result = remat.solve(instance, budget=budget, algorithm=name, time_limit=seconds, options=one.trial.options)
            found += [result] if result.report is not None and result.overhead is not None else []
        return found

    chosen = selection.candidates(problem, timed=False)
    answers = ask(chosen.asked) or ask(chosen.others + chosen.covered)
    return min(answers, key=lambda result: result.overhead or 0.0, default=None)
