"""``gateway check`` as users run it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.stack import GatewayProcess
from tests.terminal import GatewayTerminal, Terminal
from tests.tiny_model import write_tiny_model
from tests.warm_gateways import gateway

GATEWAY = Path(sys.executable).with_name("gateway")


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return gateway("check", *arguments, folder=folder)


def on_terminal(folder: Path, *arguments: str) -> str:
    """What a small terminal is shown of a check that finds an error."""
    command = ["env", "--chdir", folder, GATEWAY, "check", *arguments]
    with Terminal(command, os.environ, columns=60, rows=24) as terminal:
        assert terminal.end() == 1
        return terminal.plain


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "tiny")
    (tmp_path / "gateway.yaml").write_text(
        "models:\n- name: tiny\n  triton: {url: 'localhost:1'}\n  tokenizer: tiny\n  max_seq_len: 2048\n"
    )
    return tmp_path


def test_a_right_file(folder: Path) -> None:
    done = check(folder, "--offline")
    assert (done.returncode, done.stdout, done.stderr) == (0, "No problems found.\n", "")


def test_without_a_target_and_a_file_the_targets_are_told(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: there is no gateway.yaml here: name a settings file, ")


def test_mistakes_are_plain_lines_and_exit_status_1(folder: Path) -> None:
    with (folder / "gateway.yaml").open("a") as file:
        file.write("  max_stp: 3\nserver: {port: x}\n")
    done = check(folder, "gateway.yaml", "--offline")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "gateway.yaml:6: error: models[0].max_stp: unknown key. Did you mean 'max_stops'?",
        "gateway.yaml:7: error: server.port: must be an integer.",
        "2 errors",
    ]
    values = json.loads(check(folder, "gateway.yaml", "--offline", "--json").stdout)
    assert values["ok"] is False
    assert values["findings"][0] == {
        "severity": "error", "where": "gateway.yaml:6", "what": "models[0].max_stp: unknown key.",
        "fix": "Did you mean 'max_stops'?",
    }  # fmt: skip


def test_a_terminal_gets_the_mistakes_of_each_place_together_and_whole(folder: Path) -> None:
    mistakes = {"triton": {"url": "127.0.0.1:8001"}, "max_stp": 3, "tokeniser": "a"}
    (folder / "gateway.yaml").write_text(json.dumps({"models": [mistakes]}))  # all of it is line 1
    heading, place, *said = on_terminal(folder).splitlines()
    assert (heading, place) == ("error", "  gateway.yaml:1")
    assert "gateway.yaml:1" not in "".join(said)
    words = " ".join(line.strip() for line in said)
    assert "models[0].max_stp: unknown key. Did you mean 'max_stops'?" in words
    assert "models[0].tokeniser: unknown key. Did you mean 'tokenizer'?" in words
    assert max(map(len, said)) <= 60


def test_what_cannot_be_reached(folder: Path) -> None:
    for target in (f"127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}", "nothing.yaml"):
        done = check(folder, target)
        assert done.returncode == 1
        assert done.stdout.startswith(f"{target}")
        assert ": error: " in done.stdout
        assert done.stderr == ""


def test_what_a_triton_can_do_fits_a_screen(folder: Path, triton: Any) -> None:
    """What a model is chosen for, in a few lines; a program gets each in one, whatever its length."""
    done = check(folder, triton.grpc_url)
    assert done.returncode == 0, done.stdout
    begins = [
        "ensemble: the tokens path to tensorrt_llm: ", "  can: streams, ", "  cannot: beam search, ",
        "  up to the chat template: tools ",
    ]  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if ": warning: " not in line and ": info: " not in line]
    assert [line[: len(begin)] for line, begin in zip(lines, begins, strict=False)] == begins
    assert ", guaranteed tool calls, JSON schemas, " in lines[1]
    assert ", log-probs up to " in lines[1]
    assert "--verbose" in lines[4]
    assert (len(lines), lines[-1]) == (7, "ready for traffic: yes")
    with GatewayTerminal(["check", triton.grpc_url], os.environ, columns=80, rows=24) as terminal:
        assert terminal.end() == 0
    shown = terminal.plain.splitlines()
    assert len(shown) < 24
    assert max(map(len, shown)) <= 80
    for whole in ("guaranteed tool calls", "JSON schemas", "beam search"):
        assert any(whole in line for line in shown)


def test_a_triton_and_a_gateway_say_how_each_parameter_is_served(
    folder: Path, triton: Any, tiny_model_dir: Path
) -> None:
    done = check(folder, triton.grpc_url, "--verbose")
    assert done.returncode == 0, done.stdout
    assert "ensemble: the tokens path to tensorrt_llm: " in done.stdout
    *shown, count, traffic = done.stdout.splitlines()
    assert traffic == "ready for traffic: yes"
    ways = [line.split(":")[0].strip() for line in shown if line.startswith("  ")]
    assert [way for way, _ in itertools.groupby(ways)] == ["impossible", "emulated", "native"]
    assert ", logprobs, " in shown[-1]
    assert count == "No problems found." or count.endswith(("warning", "warnings"))

    wrong = check(folder, triton.grpc_url, "--model", "nothing")
    assert wrong.returncode == 1
    assert "'nothing'" in wrong.stdout
    assert "--model" in wrong.stdout

    web = check(folder, triton.http_url)
    assert web.returncode == 1
    assert "for Triton give host:port of its gRPC endpoint" in web.stdout

    settings = {"GATEWAY_MODEL": "tiny", "GATEWAY_TRITON_URL": triton.grpc_url, "GATEWAY_MAX_SEQ_LEN": "2048"}
    settings |= {"GATEWAY_TOKENIZER": str(tiny_model_dir), "GATEWAY_API_KEYS": "secret"}
    with GatewayProcess(folder / "log", **settings) as running:
        assert "--api-key" in check(folder, running.url).stdout
        values = json.loads(check(folder, running.url, "--api-key", "secret", "--json").stdout)
    assert values["ok"] is True
    assert values["models"]["tiny"]["path"] == "tokens"
    assert values["models"]["tiny"]["capabilities"]["logprobs"]["how"] == "native"


def test_a_file_is_held_against_its_triton(folder: Path, triton: Any) -> None:
    (folder / "gateway.yaml").write_text(
        f"models:\n- name: tiny\n  triton: {{url: '{triton.grpc_url}'}}\n  tokenizer: tiny\n  max_seq_len: 4096\n"
        f"- name: other\n  triton:\n    url: {triton.grpc_url}\n    model: postprocessing\n"
    )
    done = check(folder, "gateway.yaml")
    assert "gateway.yaml:5: warning: max_seq_len is 4096, but config.json allows 2048." in done.stdout
    assert done.stdout.startswith("gateway.yaml:9: error: ")
    *_, count, traffic = done.stdout.splitlines()
    assert count.startswith("1 error, ")
    assert traffic.startswith("ready for traffic: no, because: ")
    assert done.returncode == 1


def test_findings_come_by_gravity_and_in_json_by_place(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(
        "models:\n- name: tiny\n  triton: {url: 'localhost:1'}\n  tokenizer: tiny\n  max_seq_len: 4096\n"
        "- name: other\n  triton: {url: 'localhost:1'}\n  tokenizer: nowhere\n  max_seq_len: 2048\n"
    )
    places = ["gateway.yaml:8", "gateway.yaml:5"]
    plain = check(folder, "--offline")
    error, warning, count = plain.stdout.splitlines()
    assert [line.split(": ")[:2] for line in (error, warning)] == [[places[0], "error"], [places[1], "warning"]]
    assert (count, plain.returncode) == ("1 error, 1 warning", 1)
    found = json.loads(check(folder, "--offline", "--json").stdout)["findings"]
    assert [finding["where"] for finding in found] == places[::-1]
    shown = on_terminal(folder, "--offline")
    assert shown.index("gateway.yaml:8") < shown.index("gateway.yaml:5") < shown.index("1 error, 1 warning")
