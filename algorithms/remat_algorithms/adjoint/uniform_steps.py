"""Figures of an adjoint of equal steps, without arrays of the adjoint's length."""

from __future__ import annotations

from typing import NamedTuple

from remat.plugin import ALL_SCHEDULES, Layout, LeastBudget, Number, NumberArray, Problem, Proposal


class Facts(NamedTuple):
    """Figures of an adjoint: for equal steps from the instance alone, else from its `Chain`.

    Attributes
    ----------
    steps : int
    taped : bool
        Whether a step's tape can be stored.
    forward : int, float or None
        Time of an advance; None if steps differ in it. 0 for a single step.
    equal : bool
        Whether steps are equal in the time of an advance and of a tape.
    backward : int or float
        Time of all backwards, tapes and the loss: what every schedule pays once.
    state, least_state, adjoint, tape : int
        Largest sizes, and the smallest state's.
    static : int
        Bytes in the working memory throughout.
    """

    steps: int
    taped: bool
    forward: Number | None
    equal: bool
    backward: Number
    state: int
    least_state: int
    adjoint: int
    tape: int
    static: int

    @staticmethod
    def of(problem: Problem) -> Facts:
        """Read a problem of kind `adjoint`; O(1) for equal steps."""
        instance = problem.instance
        if instance.kind == "adjoint" and isinstance(instance.steps, int):
            state = instance.state_size
            adjoint = state if instance.adjoint_size is None else instance.adjoint_size
            own = instance.backward_time
            if instance.taped:
                own += instance.forward_time if instance.tape_time is None else instance.tape_time
            return Facts(
                steps=instance.steps,
                taped=instance.taped,
                forward=0 if instance.steps == 1 and not instance.taped else instance.forward_time,
                equal=True,
                backward=instance.steps * own,
                state=state,
                least_state=state,
                adjoint=adjoint,
                tape=instance.tape_size or 0,
                static=instance.static_memory,
            )
        chain = problem.chain
        equal, tapes = _equal(chain.forward_time), not chain.saves or _equal(chain.saving_forward_time)
        forward = chain.forward_time[0].item() if chain.length else 0
        backward: Number = chain.backward_time.sum().item() + chain.loss_time
        if chain.saves:
            backward += chain.saving_forward_time.sum().item()
        return Facts(
            steps=chain.length if chain.saves else chain.length + 1,
            taped=chain.saves,
            forward=forward if equal else None,
            equal=equal and tapes,
            backward=backward,
            state=int(chain.activation_size.max()),
            least_state=int(chain.activation_size.min()),
            adjoint=int(chain.gradient_size.max()),
            tape=int(chain.saved_size.max(initial=0)),
            static=chain.static_memory,
        )

    @property
    def working(self) -> int:
        """Bytes of a working state, adjoint and tape."""
        return self.static + self.state + self.adjoint + self.tape

    def layout(self, problem: Problem) -> Layout:
        """Return the numbering of tasks and values."""
        stages = self.steps if self.taped else self.steps - 1
        return Layout(stages, self.taped, shared=len(problem.machine.memories) == 1)

    def too_large(self, problem: Problem) -> Proposal | None:
        """Return the answer if the working memory, or the level that holds x_0, is too small for any schedule."""
        machine = problem.machine
        # A single step needs no additional memory for its adjoint, which replaces the state.
        pair = self.state + self.adjoint if self.steps > 1 else max(self.state, self.adjoint)
        need = self.static + self.tape + pair
        capacity = machine.memories[0].capacity
        if capacity is not None and capacity < need:
            return Proposal(infeasible_within=ALL_SCHEDULES, least=LeastBudget(need, None, True, 0))
        initial = problem.instance.initial_level
        place = None if initial is None else machine.memory_index.get(initial)
        if place is not None and place > 0:
            room = machine.memories[place].capacity
            if room is not None and room < self.state:
                return Proposal(infeasible_within=ALL_SCHEDULES, least=LeastBudget(self.state, None, True, place))
        return None


def _equal(times: NumberArray) -> bool:
    return len(times) == 0 or bool(times.min() == times.max())
