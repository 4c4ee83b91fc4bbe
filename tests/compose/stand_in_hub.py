"""A stand-in for the Hugging Face hub on loopback.

Arguments: a port, and the folder whose files each model holds. `tests/open` needs no token, `tests/gated` wants
`open-sesame`, `tests/huge` says that its weights take 100 TB; every other model is unknown.
"""

from __future__ import annotations

import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0" * 39 + "1"
HUGE = 100 * 10**12
TOKEN = "open-sesame"


class Hub(BaseHTTPRequestHandler):
    folder: Path

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0].removeprefix("/api/models")
        model = "/".join(path.split("/")[1:3])
        if model not in ("tests/open", "tests/gated", "tests/huge"):
            self._send(404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        elif model == "tests/gated" and self.headers.get("authorization") != f"Bearer {TOKEN}":
            self._send(403, b'{"error": "gated"}', {"X-Error-Code": "GatedRepo"})
        elif "/resolve/" in path:
            self._file(path.split("/resolve/")[1].split("/", 1)[1])
        elif "/revision/" in path and not path.endswith(("/revision/main", COMMIT)):
            self._send(404, b'{"error": "Invalid rev id"}', {"X-Error-Code": "RevisionNotFound"})
        elif "/tree/" in path:
            self._send(200, json.dumps([self._entry(file, model) for file in sorted(self.folder.iterdir())]).encode())
        else:
            names = [{"rfilename": file.name} for file in sorted(self.folder.iterdir())]
            self._send(200, json.dumps({"id": model, "sha": COMMIT, "siblings": names, "tags": []}).encode())

    def _entry(self, file: Path, model: str) -> dict[str, object]:
        size = HUGE if model == "tests/huge" and file.suffix == ".safetensors" else file.stat().st_size
        oid = hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
        return {"type": "file", "oid": oid, "size": size, "path": file.name}

    def _file(self, name: str) -> None:
        file = self.folder / name
        if not file.is_file():
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        body = file.read_bytes()
        size = HUGE if "/huge/" in self.path and file.suffix == ".safetensors" else len(body)
        tag = hashlib.sha256(body).hexdigest()
        self._send(200, body, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT, "X-Linked-Size": str(size)})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet: a test shows what the client saw."""


if __name__ == "__main__":
    Hub.folder = Path(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Hub).serve_forever()
