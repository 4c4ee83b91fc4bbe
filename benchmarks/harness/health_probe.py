"""A clock at ``/health/live``, in a process of its own: ``python -m benchmarks.harness.health_probe PORT``.

It asks every ten milliseconds on one connection, opened again when it ends, until standard input ends. Then it prints
how long the answers took, in milliseconds, as JSON.
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import time

_EVERY_S = 0.01
_PATIENCE_S = 30.0


def main(port: int) -> None:
    """Ask until standard input ends."""
    print("ready", flush=True)
    took: list[float] = []
    failed = 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    while not select.select([sys.stdin], [], [], _EVERY_S)[0]:
        begun = time.perf_counter()
        try:
            connection.request("GET", "/health/live")
            failed += connection.getresponse().read() != b'{"status":"ok"}'
        except (OSError, http.client.HTTPException):
            failed += 1
            connection.close()
        took.append((time.perf_counter() - begun) * 1000)
    took.sort()
    figures: dict[str, float] = {"asked": len(took), "failed": failed}
    if took:
        figures |= {
            "median_ms": round(took[len(took) // 2], 2),
            "p99_ms": round(took[len(took) * 99 // 100], 2),
            "worst_ms": round(took[-1], 2),
        }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
