"""Where settings come from, and reading them again."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.config.document import Document, read_document
from gateway.config.environment import apply_environment
from gateway.config.gateway import Settings
from gateway.config.problems import ConfigError
from gateway.config.validation import validate

Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """A settings file, or none, under the environment.

    Attributes:
        path: the file; None when the environment alone speaks.
        environment: variables that win over the file.
    """

    path: Path | None
    environment: Mapping[str, str]

    @staticmethod
    def find(path: Path | None = None, environment: Mapping[str, str] | None = None) -> SettingsSource:
        """The file that counts: ``path``, else ``GATEWAY_CONFIG``, else ``gateway.yaml`` in the working folder.

        Args:
            path: the YAML file, when the caller knows it.
            environment: variables to read instead of the process's own.
        """
        env = dict(os.environ if environment is None else environment)
        file = path or (Path(env["GATEWAY_CONFIG"]) if env.get("GATEWAY_CONFIG") else None)
        if file is None and Path("gateway.yaml").is_file():
            file = Path("gateway.yaml")
        return SettingsSource(file, env)

    def load(self) -> Settings:
        """Read everything anew.

        Raises:
            ConfigError: when the file is unreadable, a key is unknown or missing, or a value is wrong.
        """
        read = read_document(self.path) if self.path else Document()
        document = Document(copy.deepcopy(read.data), read.lines, read.problems)
        sources = apply_environment(document.data, self.environment)
        settings, problems = validate(document, sources, self.path.parent if self.path else None)
        if settings is None:
            raise ConfigError.of(problems, self.path)
        return settings

    def stamp(self) -> Stamp | None:
        """What changes when the file does: its time, size and identity; None while there is no regular file."""
        try:
            found = self.path.stat() if self.path and self.path.is_file() else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev) if found else None


def load_settings(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings file and the environment once.

    Args:
        path: the YAML file; None takes ``GATEWAY_CONFIG``, else ``gateway.yaml`` in the working folder if it is there.
        environment: variables to read instead of the process's own.

    Raises:
        ConfigError: when a file is unreadable, a key is unknown or missing, or a value is wrong.
    """
    return SettingsSource.find(path, environment).load()
