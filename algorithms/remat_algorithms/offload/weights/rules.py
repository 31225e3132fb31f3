"""`l2l` and `zero-offload`: fixed rules for where parameters lie and where they are updated.

Both keep optimizer states beside a processor outside the device, send each gradient there as soon as its backward has
made it, and update there. With L stages of P_i bytes of parameters, G_i of gradients:

- `zero-offload` (after Ren et al. 2021): parameters stay on the device. With a master copy in the optimizer states,
  sum G_i bytes leave and sum P_i come back, the least that any split with the optimizer elsewhere can do.
- `l2l` (after Pudipeddi et al. 2020): the device holds the parameters of the stage that runs and of the one that comes
  next. Each stage's come once for its forward and once for its backward, but for the last one's, which stay:
  2 sum P_i - P_L bytes; sum G_i leave.
"""

from __future__ import annotations

from pydantic import Field

from remat.plugin import Context, LeastBudget, OptionError, Options, Problem, Proposal
from remat_algorithms.offload.swaps.dispatch import Dispatched, dispatch
from remat_algorithms.offload.weights.parameters import Choice, Setting, Training


class LayerToLayerOptions(Options):
    """Options of `l2l`."""

    recompute: bool = Field(False, description="keep only each stage's input, and run its forward again before B")


def solve_zero_offload(problem: Problem, options: None, context: Context) -> Proposal:
    """Keep parameters on the device, and the optimizer's states and the updates elsewhere.

    Takes a chain whose `parameter_memory` is the device, and whose `optimizer_memory` is not; with a processor there.
    Is infeasible within its own schedule if a memory is too small for it. O(L log L).
    """
    setting = setting_of(problem, "zero-offload")
    if setting.parameter_home != setting.device:
        raise OptionError(
            f"zero-offload keeps parameters in {_name(setting, setting.device)}; parameter_memory says "
            f"{_name(setting, setting.parameter_home)}",
            argument="algorithm",
        )
    updater = _updater(setting)
    choices = [Choice(updater=updater)] * len(setting.stages)
    return conclude(setting, Training(setting, choices), "the zero-offload schedule")


def solve_l2l(problem: Problem, options: LayerToLayerOptions, context: Context) -> Proposal:
    """Bring each stage's parameters for its forward and again for its backward, one stage ahead.

    Takes a chain whose `parameter_memory` and `optimizer_memory` are not the device; with a processor there. Is
    infeasible within its own schedule if a memory is too small for it. O(L log L).
    """
    setting = setting_of(problem, "l2l")
    if setting.parameter_home == setting.device:
        raise OptionError(
            f"l2l brings parameters to {_name(setting, setting.device)} stage by stage; parameter_memory "
            "must be another memory",
            argument="algorithm",
        )
    updater = _updater(setting)
    last = max((index for index in setting.updated if setting.stages[index].parameters is not None), default=0)
    choices = [Choice(index != last, updater, options.recompute) for index in range(len(setting.stages))]
    training = Training(setting, choices, one_ahead=True)
    return conclude(setting, training, "the l2l schedule")


def setting_of(problem: Problem, name: str) -> Setting:
    """Return the setting of a chain with parameters.

    Raises
    ------
    remat.OptionError
        If the chain has none.
    """
    if not problem.instance.has_parameters:
        raise OptionError(
            f"{name} is for chains with parameters; give stages a parameter_size (remat.instance/2)",
            argument="algorithm",
        )
    return Setting(problem, name)


def conclude(setting: Setting, training: Training, scope: str) -> Proposal:
    """Dispatch one program; where it does not fit, say what would be enough."""
    program, graph, machine = training.program, setting.graph, setting.machine
    outcome = dispatch(graph, machine, program)
    if isinstance(outcome, Dispatched):
        return Proposal(steps=outcome.steps, makespan=outcome.makespan)
    if outcome.needed == 0:  # several bounded memories wait for each other
        return Proposal()
    larger = machine.with_capacities({machine.memories[outcome.memory].name: outcome.needed})
    enough = isinstance(dispatch(graph, larger, program), Dispatched)
    task = program.runs[outcome.position].task
    least = LeastBudget(outcome.needed, task, enough, outcome.memory)
    return Proposal(infeasible_within=scope, least=least)


def _updater(setting: Setting) -> int:
    """Return the processor beside the optimizer states, which must not be on the device."""
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
