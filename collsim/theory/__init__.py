"""What a collective ought to take: closed forms of algorithms, and lower bounds for any topology.

Nothing here knows the engine or a schedule, so that the two can be compared.
"""

from collsim.theory.bounds import Bound, lower_bound
from collsim.theory.closed_forms import closed_form
from collsim.theory.costs import Prediction
from collsim.theory.in_network import predict_in_network
from collsim.theory.predict import predict

__all__ = ["Bound", "Prediction", "closed_form", "lower_bound", "predict", "predict_in_network"]
