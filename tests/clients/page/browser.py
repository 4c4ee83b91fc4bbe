"""A headless Chromium, which npm brings, and a page in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from gateway_ops.local_stack.cache import locked
from tests.npm import UnavailableError, installed

_HERE = Path(__file__).parent
_UNPACK = 'import chromium from "@sparticuz/chromium"; process.stdout.write(await chromium.executablePath());'


class Page:
    """The open page of a `Browser`; selectors are Playwright's, scripts are expressions."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def call(self, method: str, *given: Any) -> Any:
        """Call a method of Playwright's page, such as ``keyboard.press``."""
        return self._browser.ask("call", method, *given)

    def click(self, selector: str) -> None:
        """Click, as soon as it can be clicked."""
        self.call("click", selector)

    def fill(self, selector: str, text: str) -> None:
        """Replace the text of a field."""
        self.call("fill", selector, text)

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        self.call("keyboard.press", key)

    def open_panel(self, title: str) -> None:
        """Unfold a part of the settings."""
        self.click(f'#settings summary:has-text("{title}")')

    def text(self, selector: str) -> str:
        """The text of an element, as it stands in the page."""
        return str(self.call("textContent", selector))

    def all(self, selector: str) -> list[str]:
        """The texts of all such elements."""
        return list(self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)"))

    def value(self, script: str) -> Any:
        """What a script comes to."""
        return self.call("evaluate", script)

    def until(self, script: str) -> None:
        """Wait until a script comes to true."""
        self._browser.ask("until", script)

    def says(self, words: str, where: str = "#status") -> None:
        """Wait for words in the line of states, or elsewhere."""
        self.until(f"document.querySelector({json.dumps(where)})?.textContent.includes({json.dumps(words)})")

    def send(self, message: str) -> None:
        """Write a message and send it."""
        self.fill("#draft", message)
        self.click("#send")

    def serious(self) -> list[Any]:
        """What axe-core finds serious or worse, with the elements."""
        return [found for found in self._browser.ask("axe") if found[0] in {"serious", "critical"}]

    def problems(self) -> list[str]:
        """Errors and warnings of its console since the last look, and requests to other hosts."""
        return list(self._browser.ask("problems"))


class Browser:
    """A browser with one page at a time; a context manager.

    Raises:
        UnavailableError: there is none here, and none to be had.
    """

    def __init__(self) -> None:
        modules = installed(_HERE / "package.json")
        command = ["node", str(_HERE / "driver.mjs"), str(modules), str(_unpacked(modules))]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the browser
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._log.close()

    def open(self, url: str, **options: Any) -> Page:
        """Open a page afresh, with nothing stored; options are those of Playwright's ``newContext``."""
        self.ask("open", url, options)
        return Page(self)

    def ask(self, *command: Any) -> Any:
        """Have the driver do something, and return what comes of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{json.dumps(command)}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._ended()
        line = self._process.stdout.readline()
        if not line:
            self._ended()
        answer = json.loads(line)
        assert "error" not in answer, f"{command[:3]}: {answer['error']}"
        return answer["value"]

    def _ended(self) -> None:
        self._log.seek(0)
        said = self._log.read()
        if missing := re.search(r"error while loading shared libraries: \S+", said):
            raise UnavailableError(f"Chromium does not start here: {missing[0]}")
        raise AssertionError(f"the browser ended:\n{said[-4000:]}")


def _unpacked(modules: Path) -> Path:
    """The browser, which its package has compressed."""
    folder = modules.parent / "browser"
    with locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                whole = Path(made) / "whole"
                whole.mkdir()
                command = ["node", "--input-type=module", "--eval", _UNPACK]
                subprocess.run(
                    command, cwd=modules.parent, env=os.environ | {"TMPDIR": str(whole)}, check=True, timeout=120
                )
                os.replace(whole, folder)  # noqa: PTH105 - half of it is never seen
    return folder / "chromium"
