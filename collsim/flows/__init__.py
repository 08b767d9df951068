"""Maximum flow and cuts on plain integer arrays: exact, and ignorant of machines and schedules."""

from collsim.flows.classes import classes
from collsim.flows.network import Network
from collsim.flows.ratio import greatest_ratio, least_cut

__all__ = ["Network", "classes", "greatest_ratio", "least_cut"]
