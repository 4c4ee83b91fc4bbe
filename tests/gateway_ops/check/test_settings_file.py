"""``gateway check FILE``: every mistake with its line, in settings, keys and mirrors, and what to do about it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from textwrap import dedent

import pytest

from gateway.settings import ConfigError, load_settings
from gateway.settings.extras import pip_install
from gateway.text.tokens import Tokenizer, TokenizerError
from gateway_ops.check import Finding, Severity
from gateway_ops.check.settings_file import check_file
from tests.certificates import Authority
from tests.ports import free_port
from tests.tiny_model import write_tiny_model

EXAMPLES = Path(__file__).parents[3] / "examples" / "deployments"


async def findings(folder: Path, text: str, *, offline: bool = True) -> list[tuple[str, Finding]]:
    """Findings, each with its place: the line in gateway.yaml, or file and line in another file."""
    path = folder / "gateway.yaml"
    path.write_text(dedent(text))
    found, _ = await check_file(path, offline=offline)
    return [(each.where.removeprefix(f"{path}:").removeprefix(f"{folder}/"), each) for each in found]


async def lines(folder: Path, text: str) -> list[tuple[str, str]]:
    return [(where, f"{each.what} {each.fix}".strip()) for where, each in await findings(folder, text)]


RIGHT = """\
models:
- name: tiny
  triton: {url: 'localhost:8001'}
  tokenizer: tiny
  max_seq_len: 2048
"""


async def test_a_tokenizer_that_reads_prompts_as_a_whole_is_named(folder: Path) -> None:
    file = folder / "tiny" / "tokenizer.json"
    spec = json.loads(file.read_text())
    for token in spec["added_tokens"]:
        token["normalized"] = True
    file.write_text(json.dumps(spec))
    ((_, found),) = await findings(folder, RIGHT)
    assert found.severity is Severity.INFO
    assert "tokenizes its whole prompt again" in found.what


async def test_a_missing_package_of_telemetry_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = RIGHT + "telemetry:\n  traces: true\n"
    assert await lines(folder, text) == []
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    ((where, said),) = await lines(folder, text)
    assert (where, pip_install("otel") in said) == ("7", True)


async def test_what_keeps_a_gateway_from_its_state_is_found(folder: Path) -> None:
    (folder / "text").write_text("no database")
    (folder / "keys").write_text("no key")
    state = "state: {path: text, keys_file: none}\n"
    found = await findings(folder, RIGHT + state)
    assert [(where, each.severity) for where, each in found] == [("6", Severity.ERROR)] * 2
    assert [each.what.partition(":")[0] for _, each in found] == ["state.path", "state.keys_file"]
    state = "state:\n  path: text/state.sqlite\n  keys_file: keys\n"
    found = await findings(folder, RIGHT + state)
    assert [(where, each.what.partition(":")[0]) for where, each in found] == [
        ("7", "state.path"), ("8", "state.keys_file"),
    ]  # fmt: skip


async def test_every_mistake_is_named_with_its_line(folder: Path) -> None:
    text = """\
        server:
          prot: 9000
        port: 9001
        timeouts: 5
        models:
          - name: a
            aliases: [b, tiny]
            triton: {url: 'localhost:8001', modle: ensemble}
            max_seq_len: many
            tokenizer: nowhere
          - name: b
            tokenizer: tiny
          - name: c
            name: d
            triton:
              url: localhost
            escape_special_tokens: maybe
            policies: {impossible: lenient}
            whatever: 1
          - just text
        """
    found = await lines(folder, text)
    expected = [
        ("2", "server.prot: unknown key. Did you mean 'port'?"),
        ("3", "port: unknown key. Did you mean 'server.port'?"),
        ("4", "timeouts: must be a mapping."),
        ("8", "models[0].triton.modle: unknown key. Did you mean 'model'?"),
        ("9", "models[0].max_seq_len: must be an integer."),
        ("10", f"The folder {folder / 'nowhere'} does not exist."),
        ("11", "models[1].triton: is required."),
        ("11", "models[1].name: the name 'b' is already taken by models[0].aliases."),
        ("14", "models[2].name: duplicate key, first used in line 13."),
        ("16", "models[2].triton.url: must be host:port"),
        ("17", "models[2].escape_special_tokens: must be true or false."),
        ("18", "models[2].policies.impossible: input should be 'strict', 'warn' or 'ignore'."),
        ("19", "models[2].whatever: unknown key. Known keys here: name, aliases, triton,"),
        ("20", "models[3]: must be a mapping."),
    ]
    assert [where for where, _ in found] == [where for where, _ in expected]
    for (_, said), (_, beginning) in zip(found, expected, strict=True):
        assert said.startswith(beginning)


async def test_merged_mappings_are_read_as_yaml_means_them(folder: Path) -> None:
    text = """\
        models:
          - &base
            name: one
            triton: {url: 'localhost:8001'}
            tokenizer: tiny
            max_seq_len: 64
          - <<: *base
            name: two
            max_sto: 4
        """
    assert await lines(folder, text) == [("9", "models[1].max_sto: unknown key. Did you mean 'max_stops'?")]


async def test_tokenizer_and_template(folder: Path) -> None:
    (folder / "broken.jinja").write_text("{{ 1 }}\n{% for %}\n")
    (folder / "empty").mkdir()
    (folder / "spoilt").mkdir()
    (folder / "spoilt" / "tokenizer.json").write_text("{}")
    (folder / "bare").mkdir()
    (folder / "bare" / "tokenizer.json").write_bytes((folder / "tiny" / "tokenizer.json").read_bytes())
    text = """\
        models:
          - {name: a, triton: {url: 'h:1'}, max_seq_len: 64, tokenizer: empty}
          - {name: b, triton: {url: 'h:1'}, max_seq_len: 64, tokenizer: spoilt}
          - {name: c, triton: {url: 'h:1'}, max_seq_len: 64, tokenizer: tiny/tokenizer.json}
          - {name: d, triton: {url: 'h:1'}, max_seq_len: 64, tokenizer: tiny, template: broken.jinja}
          - {name: e, triton: {url: 'h:1'}, max_seq_len: 64, tokenizer: tiny, template: none.jinja}
          - {name: f, triton: {url: 'h:1'}, max_seq_len: 64, tokenizer: bare}
        """
    found = await findings(folder, text)
    assert [where for where, _ in found] == ["2", "3", "4", "broken.jinja:2", "6", "7"]
    assert {each.severity for _, each in found} == {Severity.ERROR}
    what = [each.what for _, each in found]
    assert "has no tokenizer.json" in what[0]
    assert "is not a folder" in what[2]
    assert "does not parse" in what[3]
    assert "cannot be read" in what[4]
    assert "chat template" in what[5]


@pytest.mark.usefixtures("one_helper")
@pytest.mark.parametrize("content", [None, b"no model"])
async def test_a_tokenizer_is_refused_in_the_words_of_the_server(folder: Path, content: bytes | None) -> None:
    native = folder / "native"
    native.mkdir()
    if content is not None:
        (native / "tokenizer.model").write_bytes(content)
    text = "models: [{name: a, triton: {url: 'h:1'}, max_seq_len: 64, tokenizer: native}]"
    with pytest.raises(TokenizerError) as refusal:
        Tokenizer.from_folder(native)
    assert [each.what for _, each in await findings(folder, text)] == [str(refusal.value)]


async def test_what_is_allowed_but_hardly_meant(folder: Path) -> None:
    text = """\
        server:
          host: 0.0.0.0
        timeouts:
          total_s: 10
          first_token_s: 20
        models:
          - name: tiny
            triton: {url: 'localhost:8001'}
            tokenizer: tiny
            max_seq_len: 9000
            defaults:
              max_tokens: 9000
        """
    found = await findings(folder, text)
    assert [where for where, _ in found] == ["2", "5", "10", "12"]
    assert {each.severity for _, each in found} == {Severity.WARNING}


async def test_a_triton_that_is_away_is_a_warning(folder: Path) -> None:
    text = f"""\
        models:
          - name: known
            triton:
              url: 127.0.0.1:{free_port()}
            tokenizer: tiny
            max_seq_len: 2048
          - name: unknown
            triton:
              url: 127.0.0.1:{free_port()}
        """
    found = await findings(folder, text, offline=False)
    assert {each.severity for _, each in found} == {Severity.WARNING}
    assert [where for where, _ in found] == ["4", "7", "9"]
    assert "must come from Triton" in found[1][1].what


async def test_a_model_wants_no_more_drafts_than_its_deployment_takes(folder: Path) -> None:
    text = (EXAMPLES / "draft-target.yaml").read_text()
    wanted = "{num_draft_tokens: 8, max_draft_tokens: 8}"
    for asked, keys in (
        (wanted, []),
        ("{num_draft_tokens: 9}", ["num_draft_tokens"]),
        ("{num_draft_tokens: 7, max_draft_tokens: 9}", ["max_draft_tokens"]),
        ("{num_draft_tokens: 10, max_draft_tokens: 10}", ["num_draft_tokens", "max_draft_tokens"]),
    ):
        found = [each for _, each in await findings(folder, text.replace(wanted, asked)) if "speculative" in each.what]
        reason = "the value is more than max_draft_tokens of deployment 'target', 8."
        assert [each.what for each in found] == [f"models[0].speculative.{key}: {reason}" for key in keys]
        assert all(each.fix.startswith("Take at most 8") and each.severity is Severity.ERROR for each in found)
    elsewhere = text.replace(wanted, "{num_draft_tokens: 9}").replace("model: tensorrt_llm_bls", "model: another_bls")
    assert not [each for _, each in await findings(folder, elsewhere) if "speculative" in each.what]


async def test_a_deployment_that_does_not_stream_is_told_of(folder: Path) -> None:
    text = (
        (EXAMPLES / "llama3-8b-awq.yaml").read_text().replace("    triton:\n", "    triton:\n      decoupled: false\n")
    )
    (found,) = [each for _, each in await findings(folder, text) if "decoupled" in each.what]
    assert (found.severity, found.fix) == (Severity.WARNING, "Leave it true.")
    assert "one event" in found.what


async def test_certificates_that_cannot_be_used_are_found_and_those_that_end_soon(folder: Path) -> None:
    authority = Authority(folder / "ca")
    soon, other = authority.issue("soon", days=3), authority.issue("other")
    file = f"""\
    server:
      tls:
        certificate: {soon.certificate}
        key: {soon.key}
        client_ca: {authority.path}
        client_certificates: required
    models:
      - name: tiny
        triton:
          url: 'localhost:8001'
          tls: {{certificate: {other.certificate}, key: {soon.key}}}
        tokenizer: tiny
        max_seq_len: 2048
    """
    found = await findings(folder, file)
    assert [(where, each.severity) for where, each in found] == [
        ("3", Severity.WARNING), ("6", Severity.WARNING), ("11", Severity.ERROR),
    ]  # fmt: skip
    said = [each.what for _, each in found]
    assert said[0] == f"The certificate in {soon.certificate} expires in 2 days."
    assert said[2] == f"triton.tls: the key in {soon.key} does not match the certificate in {other.certificate}."


HASH = f"sha256:{hashlib.sha256(b'key').hexdigest()}"
OTHER = f"sha256:{hashlib.sha256(b'other').hexdigest()}"


async def with_keys(folder: Path, *lines: str, mode: int = 0o600) -> list[tuple[str, Severity, str]]:
    path = folder / "keys.yaml"
    path.write_text("\n".join(("keys:", *lines)))
    path.chmod(mode)
    found = await findings(folder, RIGHT + "auth: {keys_file: keys.yaml}\n")
    return [(where, each.severity, each.what) for where, each in found]


async def test_keys_of_a_file_are_looked_at(folder: Path) -> None:
    assert await with_keys(folder, f"- {{name: a, hash: '{HASH}', expires: 2999-01-01, models: [tiny]}}") == []
    old = f"- {{name: old, hash: '{HASH}', expires: 2020-01-01}}"
    assert await with_keys(folder, old, f"- {{name: lost, hash: '{OTHER}', models: [tiny, large]}}", mode=0o644) == [
        ("keys.yaml", Severity.WARNING,
         "Every user of this machine can read the keys file, which has names, models and hashes of keys."),
        ("keys.yaml:2", Severity.WARNING, "The key 'old' has expired (2020-01-02 00:00 UTC)."),
        ("keys.yaml:3", Severity.WARNING, "The key 'lost' names the model 'large', which is not served."),
    ]  # fmt: skip
    wrong = f"- {{name: b, hash: '{HASH}', limits: {{rpm: 3}}}}", f"- {{name: c, hash: '{OTHER}', weight: 1.0e-300}}"
    found = await with_keys(folder, "- {name: a, hash: sk-secret}", *wrong)
    assert [each[:2] for each in found] == [(f"keys.yaml:{line}", Severity.ERROR) for line in (2, 3, 4)]
    assert ("sha256:" in found[0][2], "sk-secret" in found[0][2], "0.001" in found[2][2]) == (True, False, True)
    (folder / "keys.yaml").unlink()
    ((where, missing),) = await findings(folder, RIGHT + "auth:\n  keys_file: keys.yaml\n")
    assert (where, missing.severity) == ("7", Severity.ERROR)


async def test_keys_of_the_settings_and_tokens_are_looked_at(folder: Path) -> None:
    keys = f"auth:\n  keys:\n  - {{name: old, hash: '{HASH}', expires: 2020-01-01}}\n"
    jwt = "  jwt:\n    issuer: https://issuer.example\n    audience: [gateway]\n    jwks_url: http://issuer.example/keys\n"
    assert [where for where, _ in await findings(folder, RIGHT + keys + jwt)] == ["8", "12"]
    jwt = jwt.replace("jwks_url: http://issuer.example/keys", "jwks_file: none.json")
    where, found = (await findings(folder, RIGHT + keys + jwt))[1]
    assert (where, found.severity) == ("12", Severity.ERROR)


def model(name: str, more: str = "", tokenizer: str = "tiny", length: int = 2048) -> str:
    url = "triton: {url: 'localhost:8001'}"
    return f"- {{name: {name}, {url}, tokenizer: {tokenizer}, max_seq_len: {length}{more}}}\n"


def mirrored(mirror: str, other: str, server: str = "server: {internal_port: 9001}\n") -> str:
    return f"{server}models:\n{model('a', f', mirror: {mirror}')}{other}"


@pytest.mark.parametrize(
    ("mirror", "problem"),
    [
        ("{to: a}", "models[0].mirror.to: a model cannot be its own mirror."),
        ("{to: c}", "models[0].mirror.to: 'c' must be the name of a configured model."),
        ("{to: b, share: 0}", "models[0].mirror.share: input should be greater than 0."),
        ("{to: b, show_text: true}",
         "models[0].mirror.show_text: requires server.internal_port because texts are only shown on that port."),
    ],
)  # fmt: skip
async def test_a_mirror_that_cannot_be_is_refused(folder: Path, mirror: str, problem: str) -> None:
    found = await lines(folder, mirrored(mirror, model("b"), server=""))
    assert [where for where, said in found if problem in said] == ["2"]
    with pytest.raises(ConfigError, match="mirror"):
        load_settings(folder / "gateway.yaml", {})


async def test_what_makes_the_report_of_a_mirror_worth_little_is_said(folder: Path) -> None:
    assert await lines(folder, mirrored("{to: b}", model("b"))) == []
    first, second = await lines(folder, mirrored("{to: b}", model("b", ", mirror: {to: a}")))
    assert "'a' and 'b' are mirrored to each other: only requests of clients are mirrored" in first[1]
    assert "'b' and 'a' are mirrored to each other" in second[1]
    ((_, unread),) = await lines(folder, mirrored("{to: b}", model("b"), server=""))
    assert "served on the internal port, which is not configured" in unread
    write_tiny_model(folder / "other")
    file = folder / "other" / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"normalizer": {"type": "Lowercase"}}))
    (where, tokenizer), *_, (_, context) = await lines(folder, mirrored("{to: b}", model("b", "", "other", 1024)))
    assert where == "3"
    assert tokenizer.startswith("A, 'a', and its mirror B: the models differ in their tokenizer: A has ")
    assert "B: the models differ in their context: A has 2048 tokens, B has 1024 tokens." in context
