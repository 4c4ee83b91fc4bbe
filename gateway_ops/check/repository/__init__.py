"""The review of a Triton model repository before it is deployed."""

from gateway_ops.check.repository.review import check_repository

__all__ = ["check_repository"]
