"""``python -m tools.openapi``: write the file of ``/openapi.json``."""

from __future__ import annotations

from gateway.api.page.document import FILE
from tools.openapi.document import openapi_document, written


def main() -> None:
    """Write it."""
    FILE.write_text(written(openapi_document({"api_keys": ["key"]})) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
