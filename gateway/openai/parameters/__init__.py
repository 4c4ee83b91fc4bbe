"""Request parameters: one table of what each is, and the check of a request against it."""

from gateway.openai.parameters.check import Ignored, Policies, Policy, check_parameters
from gateway.openai.parameters.row import Endpoint, Parameter
from gateway.openai.parameters.table import PARAMETERS, find, served

__all__ = [
    "PARAMETERS",
    "Endpoint",
    "Ignored",
    "Parameter",
    "Policies",
    "Policy",
    "check_parameters",
    "find",
    "served",
]
