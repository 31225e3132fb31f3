"""Tools for time-stepping codes and their adjoints: run a plan, online checkpointing, `checkpoint_schedules`.

`remat.stream` yields the actions of long schedules.
"""

from __future__ import annotations

from remat.bridges.checkpoint_schedules.export import actions_for_checkpoint_schedules, to_checkpoint_schedules
from remat.time_loops.online import OnlineSchedule
from remat.time_loops.running import run

__all__ = ["OnlineSchedule", "actions_for_checkpoint_schedules", "run", "to_checkpoint_schedules"]
