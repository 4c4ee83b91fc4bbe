"""Asks a starting tritonserver by HTTP whether it is the expected server, and what is ready."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Final

_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class TritonHttp:
    """The HTTP endpoint of a server.

    Attributes:
        host: an address to connect to.
        port: its HTTP port.
    """

    host: str
    port: int

    def is_named(self, name: str) -> bool:
        """Tell whether the server that responds has this name (``--id``), as another may use the port."""
        answer = self._get("/v2")
        try:
            return answer is not None and json.loads(answer).get("name") == name
        except (ValueError, AttributeError):
            return False

    def lives(self) -> bool:
        """Tell whether the server responds in time that it is live."""
        return self._get("/v2/health/live") is not None

    def model_ready(self, model: str) -> bool:
        """Tell whether Triton reports a model as ready."""
        return self._get(f"/v2/models/{model}/ready") is not None

    def _get(self, path: str) -> bytes | None:
        # No urllib: it would go through a proxy that the environment names.
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return body if answer.status == http.HTTPStatus.OK else None
