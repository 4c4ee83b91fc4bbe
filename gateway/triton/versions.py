"""The table of TensorRT-LLM's versions with changes that no model declares.

Triton does not tell the version; the operator does (``engine_version``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.triton.parameters import GROUPS

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """The changes of a version.

    Attributes:
        heeded: request parameters that the sampler of the LLM API's default backend silently drops before it.
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
    """Tell whether a version, or one before it, has a change; False for an unknown version.

    Args:
        version: numbers of the version.
        change: an attribute of ``VersionChanges``.
    """
    return version is not None and any(getattr(each, change) for since, each in VERSIONS.items() if since <= version)
