"""Verification of a CSV schedule against an instance of kind `pipeline`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import IO, Any

from remat.bridges.pipelining.actions import read_csv
from remat.bridges.pipelining.layout import check_layout
from remat.bridges.pipelining.orders import notes_on, orders_of, schedule_document
from remat.bridges.pipelining.rendezvous import hang_of, told
from remat.errors import InstanceError
from remat.instance import Instance, MachineModel, PipelineInstance
from remat.instance.lowering import machine_of
from remat.solving.budget import Budget
from remat.solving.verifying import Examined, examine
from remat.verifier import Violation, nothing_run


def examine_csv(
    instance: Instance,
    source: str | os.PathLike[str] | IO[Any],
    *,
    machine: MachineModel | None = None,
    budget: Budget = None,
) -> Examined:
    """Verify a CSV schedule as `remat.verify` verifies its orders; the instance's layers are cut into even parts.

    If the CSV lists sends and receives, they block both ends in the listed order (see
    `remat.bridges.pipelining.rendezvous`). Ranks that wait for each other forever violate the rule `deadlock`.

    Raises
    ------
    InstanceError
        For a CSV that is unreadable or does not match the instance.
    """
    if not isinstance(instance, PipelineInstance):
        raise InstanceError(f"CSV schedules are for pipelines, and the instance is a {instance.kind}")
    layout = check_layout(read_csv(source), _named(source))
    used = machine_of(instance, machine)
    devices = [processor.name for processor in used.processors]
    document = schedule_document(orders_of(layout, instance, len(devices)), devices)
    examined = examine(instance, document, machine=machine, budget=budget)
    report = replace(examined.report, notes=(*examined.report.notes, *notes_on(layout, instance)))
    hangs = any(violation.rule == "deadlock" for violation in report.violations)
    if layout.has_transfers and not hangs and (cycle := hang_of(layout)) is not None:
        message = f"sends and receives that wait for their other end: {told(cycle, devices)}"
        violations = (*report.violations, Violation(None, "deadlock", message))
        report = replace(nothing_run(examined.machine), violations=violations, notes=report.notes)
    return replace(examined, report=report)


def _named(source: object) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    return str(getattr(source, "name", "the schedule"))
