"""Reviews a Triton model repository before its deployment."""

from gateway_ops.check.repository.review import check_repository

__all__ = ["check_repository"]
