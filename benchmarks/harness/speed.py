"""The present speed of the machine: the time of a fixed piece of work."""

from __future__ import annotations

import json
import statistics
import time

_TIMES = 1_200
_SECONDS = 1.0
_VALUE = {"model": "m", "messages": [{"role": "user", "content": "word " * 40}], "stop": None, "n": list(range(16))}


def reference_ms() -> float:
    """CPU milliseconds of the work: the interpreter, small objects, dictionaries, strings; some 20 ms."""
    begun = time.process_time()
    seen: dict[str, int] = {}
    for number in range(_TIMES):
        text = json.dumps({**_VALUE, "id": number})
        value = json.loads(text)
        for word in value["messages"][0]["content"].split():
            seen[f"{word}-{number % 7}"] = seen.get(word, 0) + len(text)
    return (time.process_time() - begun) * 1000


def main() -> None:
    """Print the milliseconds of the work, as it goes on for a second."""
    until = time.monotonic() + _SECONDS
    found = []
    while time.monotonic() < until:
        found.append(reference_ms())
    print(statistics.median(found))


if __name__ == "__main__":
    main()
