"""``gateway check`` on keys with names: each mistake with its place."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gateway_ops.check import Severity
from gateway_ops.check.settings_file import check_file

MODELS = """\
models:
- {name: tiny, aliases: [small], triton: {url: 'h:1'}, tokenizer: tiny, max_seq_len: 2048}
"""
HASH = f"sha256:{hashlib.sha256(b'key').hexdigest()}"


async def findings(folder: Path, auth: str) -> list[tuple[str, Severity, str]]:
    path = folder / "gateway.yaml"
    path.write_text(MODELS + auth)
    found, _ = await check_file(path, offline=True)
    return [(each.where.removeprefix(f"{folder}/"), each.severity, each.what) for each in found]


def key_file(folder: Path, *lines: str, mode: int = 0o600) -> None:
    path = folder / "keys.yaml"
    path.write_text("\n".join(("keys:", *lines)))
    path.chmod(mode)


async def test_right_keys_have_no_findings(folder: Path) -> None:
    key_file(folder, f"- {{name: a, hash: '{HASH}', expires: 2999-01-01, models: [tiny, small]}}")
    assert await findings(folder, "auth: {keys_file: keys.yaml}\n") == []


async def test_a_weight_too_small_to_count_with_is_refused(folder: Path) -> None:
    key_file(folder, f"- {{name: a, hash: '{HASH}', weight: 1.0e-300}}")
    ((_, severity, what),) = await findings(folder, "auth: {keys_file: keys.yaml}\n")
    assert severity is Severity.ERROR
    assert "0.001" in what


async def test_keys_of_a_file_are_looked_at(folder: Path) -> None:
    other = HASH[:-1] + ("0" if HASH[-1] != "0" else "1")
    key_file(
        folder,
        f"- {{name: old, hash: '{HASH}', expires: 2020-01-01}}",
        f"- {{name: lost, hash: '{other}', models: [tiny, large]}}",
        mode=0o644,
    )
    assert await findings(folder, "auth: {keys_file: keys.yaml}\n") == [
        ("keys.yaml", Severity.WARNING,
         "Every user of this machine can read the keys file, which has names, models and hashes of keys."),
        ("keys.yaml:2", Severity.WARNING, "The key 'old' has expired (2020-01-02 00:00 UTC)."),
        ("keys.yaml:3", Severity.WARNING, "The key 'lost' names the model 'large', which is not served."),
    ]  # fmt: skip


async def test_mistakes_of_a_file_have_their_lines(folder: Path) -> None:
    key_file(folder, "- {name: a, hash: sk-secret}", f"- {{name: b, hash: '{HASH}', limits: {{rpm: 3}}}}")
    found = await findings(folder, "auth:\n  keys_file: keys.yaml\n")
    assert [(where, severity) for where, severity, _ in found] == [
        ("keys.yaml:2", Severity.ERROR),
        ("keys.yaml:3", Severity.ERROR),
    ]
    assert "sha256:" in found[0][2]
    assert "sk-secret" not in found[0][2]
    (folder / "keys.yaml").unlink()
    assert (await findings(folder, "auth:\n  keys_file: keys.yaml\n"))[0][:2] == ("gateway.yaml:4", Severity.ERROR)


async def test_keys_of_the_settings_and_tokens_are_looked_at(folder: Path) -> None:
    auth = f"""\
auth:
  keys:
  - {{name: old, hash: '{HASH}', expires: 2020-01-01}}
  jwt:
    issuer: https://issuer.example
    audience: [gateway]
    jwks_url: http://issuer.example/keys
"""
    assert [(where, what.partition(" ")[0]) for where, _, what in await findings(folder, auth)] == [
        ("gateway.yaml:5", "The"),
        ("gateway.yaml:9", "The"),
    ]
    auth = auth.replace("jwks_url: http://issuer.example/keys", "jwks_file: none.json")
    assert (await findings(folder, auth))[1][:2] == ("gateway.yaml:9", Severity.ERROR)
