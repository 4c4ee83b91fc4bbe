"""Settings from one YAML file and the environment, validated once.

The file is ``GATEWAY_CONFIG``, else ``gateway.yaml`` in the working folder when it exists. Environment variables win
over the file. ``GATEWAY_MODEL`` (a served name) with ``GATEWAY_TRITON_URL`` and the other model variables describes one
model and takes the place of the file's ``models``.
"""

from gateway.settings.auth_settings import AuthSettings, JwtSettings, KeyLimits, KeySettings
from gateway.settings.gateway_settings import (
    LimitSettings,
    MemorySettings,
    ServerSettings,
    Settings,
    StateSettings,
    TelemetrySettings,
    TimeoutSettings,
)
from gateway.settings.model_settings import (
    EngineForm,
    EnginePath,
    ModelSettings,
    PolicySettings,
    SamplingDefaults,
    Task,
    TextStreaming,
    TritonSettings,
)
from gateway.settings.settings_source import SettingsSource, load_settings
from gateway.settings.yaml_file import ConfigError, SettingsProblem

__all__ = [
    "AuthSettings",
    "ConfigError",
    "EngineForm",
    "EnginePath",
    "JwtSettings",
    "KeyLimits",
    "KeySettings",
    "LimitSettings",
    "MemorySettings",
    "ModelSettings",
    "PolicySettings",
    "SamplingDefaults",
    "ServerSettings",
    "Settings",
    "SettingsProblem",
    "SettingsSource",
    "StateSettings",
    "Task",
    "TelemetrySettings",
    "TextStreaming",
    "TimeoutSettings",
    "TritonSettings",
    "load_settings",
]
