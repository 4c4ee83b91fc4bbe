"""JSON schemas of requests: their checks, the guides made from them, and checks of answers."""

from gateway.text.guides.guided import guided_schema
from gateway.text.guides.wellformed import check_schema, deviations, readable_part

__all__ = ["check_schema", "deviations", "guided_schema", "readable_part"]
