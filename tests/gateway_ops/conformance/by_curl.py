"""Requests by the lines that the suite prints, and by nothing else."""

from __future__ import annotations

import subprocess

from gateway_ops.conformance.bounded_http import CheckRequest, Http, HttpAnswer


def send_by_curl(http: Http, request: CheckRequest) -> HttpAnswer:
    """Run the printed line of a request in a shell and read what it shows; stands for `Http.send`."""
    shown = subprocess.run(["sh", "-c", http.curl(request)], capture_output=True, check=True, timeout=60).stdout
    head, _, body = shown.partition(b"\r\n\r\n")
    while head.split()[1].startswith(b"1"):  # 100 Continue, before the answer to a large body
        head, _, body = body.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    return HttpAnswer(request, int(status.split()[1]), headers, body)
