"""The gateway that the programs meet: a real Triton on the scripted engine, which plays a model that calls tools."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.fernet import Fernet

from tests.clients.programs.desk import BEFORE, NOTES, Desk
from tests.clients.programs.pages import MODEL
from tests.clients.programs.recorder import Exchange, Recorder
from tests.npm import UnavailableError, installed
from tests.ports import free_port
from tests.scripted_engine.replay import ScriptedServer
from tests.stack import GatewayProcess

# The scripted engine's tokenizer has a token for each letter: four times as many as a model's own.
CONTEXT = 131072
ALIAS = "claude-sonnet-4-5"
SMALL = "small"  # a model whose context is shorter than the programs' own prompts
# The form of Hermes and Qwen3, with the reasoning of all turns.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}<tools>{{ tool.function | tojson }}</tools>
{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif -%}
{%- if message.role == "tool" %}<tool_response>{{ message.content }}</tool_response>
{%- else %}{{ message.content or "" }}{% endif -%}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the programs' commands."""
    try:
        return installed(Path(__file__).with_name("package.json")) / ".bin"
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def served(scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Settings of the gateway as a file has them; Triton may be elsewhere."""
    template = tmp_path_factory.mktemp("programs") / "template.jinja"
    template.write_text(TEMPLATE, encoding="utf-8")

    def settings(url: str = scripted_triton.grpc_url) -> dict[str, Any]:
        model = {
            "name": MODEL,
            "aliases": [ALIAS],
            "triton": {"url": url},
            "tokenizer": str(scripted_triton.model_dir),
            "template": str(template),
            "family": "qwen3",
            "max_seq_len": CONTEXT,
        }
        small = model | {"name": SMALL, "aliases": [], "max_seq_len": 8192}
        return {"server": {"reload_s": 0.05}, "models": [model, small]}

    return settings


def written(file: Path, settings: dict[str, Any]) -> Path:
    """``file``, replaced at once."""
    fresh = file.with_suffix(".new")
    fresh.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return fresh.replace(file)


@pytest.fixture(scope="session")
def agent_gateway(
    programs: Path, served: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway with room for every program, and a second model without; not started where there are none."""
    folder = tmp_path_factory.mktemp("agent-gateway")
    with GatewayProcess(folder / "log", served()) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def sealing_gateway(
    programs: Path, served: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway whose operator has given a key, by which reasoning is sealed for its clients."""
    folder = tmp_path_factory.mktemp("sealing-gateway")
    state = {"state": {"keys": [Fernet.generate_key().decode()]}}
    with GatewayProcess(folder / "log", served() | state) as gateway:
        yield gateway


@contextlib.contextmanager
def _desk(programs: Path, gateway: GatewayProcess, folder: Path) -> Iterator[Desk]:
    """A desk; at its end, nothing but the gateway was asked, and only for streams."""
    work = folder / "work"
    work.mkdir()
    (work / NOTES).write_text(BEFORE, encoding="utf-8")
    with Recorder(gateway.url) as recorder:
        yield Desk(folder / "home", work, recorder, programs)
        assert recorder.elsewhere == []
        answers = [exchange for exchange in recorder.posts() if "/count_tokens" not in exchange.path]
        assert all(exchange.body["stream"] is True for exchange in answers)


@pytest.fixture
def desk(programs: Path, agent_gateway: GatewayProcess, tmp_path: Path) -> Iterator[Desk]:
    """A desk before the gateway."""
    with _desk(programs, agent_gateway, tmp_path) as desk:
        yield desk


@pytest.fixture
def sealing_desk(programs: Path, sealing_gateway: GatewayProcess, tmp_path: Path) -> Iterator[Desk]:
    """A desk before the gateway that seals."""
    with _desk(programs, sealing_gateway, tmp_path) as desk:
        yield desk


@pytest.fixture
def early(programs: Path, served: Callable[..., dict[str, Any]], tmp_path: Path) -> Iterator[Desk]:
    """A desk before a gateway whose Triton is away until it has refused one request."""
    file = written(tmp_path / "gateway.yaml", served(url=f"127.0.0.1:{free_port()}"))
    gateway = GatewayProcess(tmp_path / "log", GATEWAY_CONFIG=str(file))
    gateway.start(ready=False)

    def arrive(exchange: Exchange) -> None:
        if exchange.status >= 500:
            written(file, served())
            gateway.wait("/health/ready", 200)

    try:
        with _desk(programs, gateway, tmp_path) as desk:
            desk.recorder.after = arrive
            yield desk
    finally:
        gateway.stop()
