"""The table of TensorRT-LLM's versions: what each changed that no model declares.

Triton does not tell the version; the operator does (``engine_version``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.triton.parameters import GROUPS

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """Changes of a version.

    Attributes:
        heeded: request parameters that the sampler of the LLM API's default backend drops in silence before it.
        ends_by_generation_config: whether the LLM API ends an answer at each end token of ``generation_config.json``.
        own_log_probs: whether log-probs of the backend are the model's own by default (wire contract 2.5).
    """

    heeded: tuple[str, ...] = ()
    ends_by_generation_config: bool = False
    own_log_probs: bool = False


VERSIONS: Mapping[Version, VersionChanges] = {
    (1, 3): VersionChanges(heeded=("seed", *GROUPS["penalties"]), ends_by_generation_config=True, own_log_probs=True),
}
"""By the first version that has the changes."""


def has_change(version: Version | None, change: str) -> bool:
    """Whether a version, or one before it, brought a change; False where the version is not known.

    Args:
        version: its numbers.
        change: an attribute of ``VersionChanges``.
    """
    return version is not None and any(getattr(each, change) for since, each in VERSIONS.items() if since <= version)
