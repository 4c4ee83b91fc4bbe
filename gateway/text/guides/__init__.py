"""JSON schemas of requests: checks of them, guides made of them, and checks of answers against them."""

from gateway.text.guides.guided import guided_schema
from gateway.text.guides.wellformed import check_schema, deviations, readable_part

__all__ = ["check_schema", "deviations", "guided_schema", "readable_part"]
