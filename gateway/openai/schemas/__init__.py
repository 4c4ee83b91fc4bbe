"""JSON schemas of requests: checks of them, guides made of them, and checks of answers against them."""

from gateway.openai.schemas.guided import guided_schema
from gateway.openai.schemas.wellformed import check_schema, deviations, readable_part

__all__ = ["check_schema", "deviations", "guided_schema", "readable_part"]
