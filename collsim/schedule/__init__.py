"""What moves and in what order: the schedule, its builder, its text, its dependencies and its proof.

There is no clock and no hardware in this room.
"""

from collsim.schedule.builder import ScheduleBuilder
from collsim.schedule.model import Block, Edge, Edges, Repeat, Schedule, Transfers

__all__ = ["Block", "Edge", "Edges", "Repeat", "Schedule", "ScheduleBuilder", "Transfers"]
