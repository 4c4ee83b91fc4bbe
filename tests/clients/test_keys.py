"""API keys, request ids, the access log and metrics of a running gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.stack import GatewayProcess

MODEL = "tiny"


@pytest.fixture(scope="module")
def guarded(triton: Any, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("guarded") / "log",
        GATEWAY_MODEL=MODEL,
        GATEWAY_TRITON_URL=triton.grpc_url,
        GATEWAY_TOKENIZER=str(tiny_model_dir),
        GATEWAY_MAX_SEQ_LEN="512",
        GATEWAY_API_KEYS="first-key, second-key",
    ) as process:
        yield process


def ask(gateway: GatewayProcess, key: str, **headers: str) -> openai.types.chat.ChatCompletion:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0, default_headers=headers) as client:
        return client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "a secret word"}], max_tokens=3, temperature=0
        )


def test_either_key_opens_and_another_does_not(guarded: GatewayProcess) -> None:
    assert ask(guarded, "first-key").choices
    assert ask(guarded, "second-key").choices
    with pytest.raises(openai.AuthenticationError) as caught:
        ask(guarded, "third-key")
    assert caught.value.code == "invalid_api_key"
    assert httpx.get(f"{guarded.url}/v1/models").status_code == 401
    assert httpx.get(f"{guarded.url}/health/live").status_code == 200


def test_the_access_log_is_json_without_prompt_text_and_with_the_request_id(guarded: GatewayProcess) -> None:
    ask(guarded, "first-key", **{"x-request-id": "find-me-42"})
    lines = [json.loads(line) for line in guarded.log_lines()]
    mine = [line for line in lines if line.get("request_id") == "find-me-42"]
    assert len(mine) == 1
    assert mine[0]["status"] == 200
    assert mine[0]["model"] == MODEL
    assert mine[0]["completion_tokens"] == 3
    assert "secret" not in "\n".join(guarded.log_lines())
    assert "first-key" not in "\n".join(guarded.log_lines())


def test_metrics_count_requests_and_tokens(guarded: GatewayProcess) -> None:
    ask(guarded, "first-key")
    assert guarded.metric("gateway_completion_tokens_total") >= 3
    assert guarded.metric("gateway_completion_tokens_total") % 3 == 0
    assert guarded.metric("gateway_requests_in_flight") == 0
