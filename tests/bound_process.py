"""A process that ends with the block that uses it."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import AnyStr


class BoundProcess(subprocess.Popen[AnyStr]):
    """A process that is killed where its block fails; ``Popen`` itself would wait for it, and the test for ever."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, traceback)
