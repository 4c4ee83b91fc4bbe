"""Take the README's picture of the chat page: ``python -m tests.clients.page.picture URL``, of a running gateway."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.clients.page.browser import Browser

PICTURE = Path(__file__).parents[3] / "docs" / "page.png"
_SETTINGS = {"temperature": "0.7", "max_tokens": "120", "seed": "3"}


def main() -> None:
    """Ask one question, point at a token that could have been another, and keep what is seen."""
    with Browser() as browser:
        page = browser.open(sys.argv[1], viewport={"width": 1280, "height": 720}, colorScheme="light")
        page.says("is ready.")
        for name, value in _SETTINGS.items():
            page.fill(f"#p-{name}", value)
        page.send("How do I boil an egg? List the steps.")
        page.says("The answer is complete.")
        tints = "[...document.querySelectorAll('.text .tint')]"
        shares = page.value(f"{tints}.map((one) => Number(one.style.getPropertyValue('--p')))")[:12]
        page.call("hover", f".text .tint >> nth={shares.index(min(shares))}")
        page.call("screenshot", {"path": str(PICTURE)})


if __name__ == "__main__":
    main()
