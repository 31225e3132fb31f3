"""Fixed rules for where parameters live, when they are gathered, and where they are updated.

With L stages of P_i bytes of parameters, G_i of gradients and O_i of optimizer states, and d ranks:

- `zero` (after Rajbhandari et al. 2020): everything on the device, updates after the last backward. At the end of the
  backward a rank holds sum P + G + O; stages 1, 2 and 3 shard O, G and P of these.
- `zero-offload` (after Ren et al. 2021): parameters stay on the device. Optimizer states and updates are elsewhere, and
  gradients leave immediately. With a master copy in the optimizer states, sum G_i bytes leave and sum P_i return, the
  minimum of any split with the optimizer elsewhere.
- `l2l` (after Pudipeddi et al. 2020): the device holds the parameters of the running stage and of the next one, and
  activations wait elsewhere; device memory does not depend on the depth. Parameters come once for forward and once for
  backward, except the last one's, which stay: 2 sum P_i - P_L bytes; sum G_i leave.
- `zero-infinity` (after Rajbhandari et al. 2021): as `l2l`, from the homes of parameters and states, including homes
  more than one link away; activations stay by default, or wait in the nearest or the furthest memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from remat.plugin import Context, LeastBudget, Machine, OptionError, Options, Problem, Proposal, Steps
from remat_algorithms.offload.swaps.dispatch import Dispatched, Overfull, dispatch
from remat_algorithms.offload.swaps.only_program import dispatch_only
from remat_algorithms.offload.weights.parameters import Choice, Setting
from remat_algorithms.offload.weights.periodic_steps import cycle_of
from remat_algorithms.offload.weights.training_program import Manner, Training


class ZeroOptions(Options):
    """Options of `zero`."""

    prefetch: bool = Field(
        True,
        description="gather the parameters of the next stage during the current one; two stages then hold gathered "
        "parameters",
    )
    keep: bool = Field(False, description="keep gathered parameters from forward to backward")
    early: bool = Field(False, description="update each stage as soon as its gradient is complete")
    recompute: bool = Field(
        False, description="keep only the input of each stage, and recompute its forward before its backward"
    )


class OffloadOptions(Options):
    """Options of `zero-offload`."""

    prefetch: bool = Field(
        True,
        description="gather the parameters of the next stage during the current one; two stages then hold gathered "
        "parameters",
    )
    recompute: bool = Field(
        False, description="keep only the input of each stage, and recompute its forward before its backward"
    )


class StreamOptions(Options):
    """Common options of `l2l` and `zero-infinity`."""

    recompute: bool | None = Field(
        None,
        description="keep only the input of each stage, and recompute its forward before its backward; default: only "
        "if activations leave the device",
    )


class LayerToLayerOptions(StreamOptions):
    """Options of `l2l`."""

    activations: Literal["host", "device"] = Field(
        "host", description="where activations wait for their backward: the nearest other memory (host), or the device"
    )


class InfinityOptions(StreamOptions):
    """Options of `zero-infinity`."""

    activations: Literal["device", "host", "nvme"] = Field(
        "device",
        description="where activations wait for their backward: the device, the nearest other memory (host), or the "
        "furthest (nvme)",
    )


def solve_zero(problem: Problem, options: ZeroOptions, context: Context) -> Proposal:
    """Keep parameters, gradients and optimizer states on the device, or the rank's shares of them.

    Takes a chain whose `parameter_memory` and `optimizer_memory` are the device, or left open. Is infeasible within its
    own schedule if the device is too small for it. O(L log L).
    """
    setting = setting_of(problem, "zero", states_away=False)
    for what, home in (("parameter", setting.parameter_home), ("optimizer", setting.optimizer_home)):
        if home != setting.device:
            raise OptionError(
                f"zero keeps everything in {_name(setting, setting.device)}; {what}_memory says {_name(setting, home)}",
                argument="algorithm",
            )
    choices = [Choice(again=options.recompute, keeps=options.keep)] * len(setting.stages)
    manner = Manner(prefetch=options.prefetch, late=not options.early, stays=True)
    return conclude(setting, Training(setting, choices, manner), "the zero schedule")


def solve_zero_offload(problem: Problem, options: OffloadOptions, context: Context) -> Proposal:
    """Keep parameters on the device, and the optimizer's states and the updates elsewhere.

    Takes a chain whose `parameter_memory` is the device, and whose `optimizer_memory` is another one, with a processor
    there. Infeasible within its own schedule if a memory is too small for it. O(L log L).
    """
    setting = setting_of(problem, "zero-offload")
    if setting.parameter_home != setting.device:
        raise OptionError(
            f"zero-offload keeps parameters in {_name(setting, setting.device)}; parameter_memory says "
            f"{_name(setting, setting.parameter_home)}",
            argument="algorithm",
        )
    choices = [Choice(updater=_updater(setting), again=options.recompute)] * len(setting.stages)
    return conclude(setting, Training(setting, choices, Manner(prefetch=options.prefetch)), "the zero-offload schedule")


def solve_l2l(problem: Problem, options: LayerToLayerOptions, context: Context) -> Proposal:
    """Load each stage's parameters for its forward and again for its backward, one stage ahead.

    Takes a chain whose `parameter_memory` and `optimizer_memory` are not the device, with a processor there. Infeasible
    within its own schedule if a memory is too small for it. O(L log L).
    """
    setting = setting_of(problem, "l2l", parameters_away=True)
    _check_away(setting)
    return _stream(setting, _updater(setting), away=options.activations == "host", recompute=options.recompute)


def solve_zero_infinity(problem: Problem, options: InfinityOptions, context: Context) -> Proposal:
    """Load each stage's parameters, or the rank's share of them, from their home; update next to the host.

    Takes a chain whose `parameter_memory` and `optimizer_memory` are not the device, with a processor in another
    memory. Optimizer states whose home is beyond that memory pass through it. Infeasible within its own schedule if a
    memory is too small for it. O(L log L).
    """
    setting = setting_of(problem, "zero-infinity", parameters_away=True)
    _check_away(setting)
    if setting.helper is None:
        raise OptionError("zero-infinity updates outside the device; give a processor there", argument="machine")
    away, far = options.activations != "device", options.activations == "nvme"
    return _stream(setting, setting.helper, away=away, far=far, recompute=options.recompute)


def _stream(setting: Setting, updater: int, *, away: bool, recompute: bool | None, far: bool = False) -> Proposal:
    """Load parameters one stage ahead, twice."""
    again = away if recompute is None else recompute
    last = max((index for index in setting.updated if setting.stages[index].parameters is not None), default=0)
    choices = [Choice(index != last, updater, again) for index in range(len(setting.stages))]
    training = Training(setting, choices, Manner(one_ahead=True, away=away, far=far))
    return conclude(setting, training, f"the {setting.name} schedule")


def setting_of(problem: Problem, name: str, *, states_away: bool = True, parameters_away: bool = False) -> Setting:
    """Return the setting of a chain with parameters.

    Raises
    ------
    remat.OptionError
        If the chain has none.
    """
    if not problem.instance.has_parameters:
        raise OptionError(
            f"{name} is for chains with parameters; give stages a parameter_size (generated chains: option parameters)",
            argument="algorithm",
        )
    return Setting(problem, name, states_away=states_away, parameters_away=parameters_away)


def conclude(setting: Setting, training: Training, scope: str) -> Proposal:
    """Dispatch one program; if it does not fit, report the memory that would suffice."""
    program, graph, machine = training.program, training.graph, setting.machine
    outcome = dispatch_only(graph, machine, program)
    if isinstance(outcome, Dispatched):
        return answer(setting, training, outcome, scope)
    if outcome.needed == 0:  # several bounded memories wait for each other
        return Proposal()
    larger = machine.with_capacities({machine.memories[outcome.memory].name: outcome.needed})
    again = dispatch_only(graph, larger, program)
    enough = isinstance(again, Dispatched)
    if setting.problem.instance.is_stream and isinstance(again, Dispatched):
        enough = cycle_of(graph, larger, again.steps) is not None
    task = program.runs[outcome.position].task
    least = LeastBudget(outcome.needed, task, enough, outcome.memory)
    return Proposal(infeasible_within=scope, least=least)


def least_that_fits(machine: Machine, overfull: Iterable[tuple[Overfull, Training]]) -> LeastBudget | None:
    """Name the smallest memory, of those that programs lack, with which its program is dispatched."""
    for overrun, training in sorted(overfull, key=lambda entry: entry[0].needed):
        if overrun.needed == 0:  # several bounded memories wait for each other
            continue
        larger = machine.with_capacities({machine.memories[overrun.memory].name: overrun.needed})
        if isinstance(dispatch(training.graph, larger, training.program), Dispatched):
            return LeastBudget(overrun.needed, training.program.runs[overrun.position].task, True, overrun.memory)
    return None


def answer(setting: Setting, training: Training, outcome: Dispatched, scope: str) -> Proposal:
    """Propose a schedule, repeated with the minimum period if training steps repeat without end."""
    if not setting.problem.instance.is_stream:
        return Proposal(steps=with_places(setting, training.choices, outcome.steps), makespan=outcome.makespan)
    cycle = cycle_of(training.graph, setting.machine, outcome.steps)
    if cycle is None:
        return Proposal(notes=(f"one step of {scope} fits, and none was found that follows another in time",))
    note = f"{cycle.busiest} works all the time" if cycle.is_least else f"{cycle.busiest} works the most of the time"
    return Proposal(steps=with_places(setting, training.choices, cycle.steps), period=cycle.period, notes=(note,))


def with_places(setting: Setting, choices: Sequence[Choice], steps: Steps) -> Steps:
    """Return steps that state the homes of inputs that the schedule chooses."""
    return replace(steps, initial=setting.initial(choices))


def _check_away(setting: Setting) -> None:
    if setting.parameter_home == setting.device:
        raise OptionError(
            f"{setting.name} brings parameters to {_name(setting, setting.device)} stage by stage; parameter_memory "
            "must be another memory",
            argument="algorithm",
        )


def _updater(setting: Setting) -> int:
    """Return the processor at the memory of the optimizer states, which must not be on the device."""
    if setting.optimizer_home == setting.device:
        raise OptionError(
            f"{setting.name} keeps optimizer states outside {_name(setting, setting.device)}; "
            "optimizer_memory must be another memory",
            argument="algorithm",
        )
    updater = setting.helper
    if updater is None or setting.machine.processors[updater].memory != setting.optimizer_home:
        raise OptionError(
            f"{setting.name} updates in {_name(setting, setting.optimizer_home)}; give a processor there",
            argument="machine",
        )
    return updater


def _name(setting: Setting, memory: int) -> str:
    return repr(setting.machine.memories[memory].name)
