"""Energies as `poet` minimises them: of runs on the first processor, and of transfers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from remat.plugin import Number, Problem, StepKind, Steps


@dataclass(frozen=True, slots=True)
class EnergyCosts:
    """Energies of an instance.

    Attributes
    ----------
    run : tuple of numbers
        Energy of one run of each task on the first processor.
    byte : tuple of numbers
        Energy of each byte over each link of the machine.
    """

    run: tuple[Number, ...]
    byte: tuple[Number, ...]

    @staticmethod
    def of(problem: Problem) -> EnergyCosts | None:
        """Return the energies of a problem; None if it has none."""
        graph, machine = problem.graph, problem.machine
        byte = tuple(link.energy for link in machine.links)
        if graph.energy is None and not any(byte):
            return None
        run: list[Number] = [0] * len(graph.tasks)
        if graph.energy is not None:
            run = graph.energy.on(machine.processors[0].type).tolist()
        return EnergyCosts(tuple(run), byte)

    def figures(self) -> Iterable[Number]:
        """Return all energies."""
        return (*self.run, *self.byte)

    def total(self, problem: Problem, steps: Steps) -> Number:
        """Return the energy of steps."""
        links = problem.machine.link_index
        found: Number = 0
        for kind, item, source, target in zip(
            steps.kind.tolist(), steps.item.tolist(), steps.source.tolist(), steps.target.tolist(), strict=True
        ):
            if kind == StepKind.RUN:
                found += self.run[item]
            elif kind == StepKind.COPY:
                found += self.byte[links[source, target]] * int(problem.graph.size[item])
        return found
