"""What ``/docs`` offers to try: each example of ``/openapi.json`` is served by the real Triton, or needs a seal."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.stack import GatewayProcess

ENDS = ("data: [DONE]", '"type":"response.completed"', '"type":"response.incomplete"', '"type":"message_stop"')


def test_every_example_is_served(tiny_gateway: GatewayProcess) -> None:
    ask_for_each(tiny_gateway)


@pytest.mark.long
@pytest.mark.parametrize("gateway", ["tokens"], indirect=True)  # by both paths, see above, with the tiny model
def test_every_example_is_served_by_a_model_of_sense(gateway: GatewayProcess) -> None:
    """Its answers are shorter than the limits."""
    ask_for_each(gateway)


def ask_for_each(gateway: GatewayProcess) -> None:
    asked = 0
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        model = client.get("/v1/models").json()["data"][0]["id"]
        paths = client.get("/openapi.json").json()["paths"]
        conversation = client.post("/v1/conversations", json={}).json()["id"]
        for path, methods in paths.items():
            operation = methods.get("post", {})
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            for example in body.get("examples", {}).values():
                given = json.loads(json.dumps(example["value"]).replace('"MODEL"', json.dumps(model)))
                answer = client.post(path.replace("{conversation_id}", conversation), json=given)
                if path.endswith("/compact"):  # which needs a key to seal with, and says so
                    assert answer.json()["error"]["code"] == "compaction_not_supported"
                    continue
                if operation["tags"] == ["encoders"]:  # which tests/openai/test_encoder_endpoints.py asks
                    assert answer.json()["error"]["code"] == "unsupported_task"
                    continue
                assert answer.status_code == 200, f"{path}, {example['summary']}: {answer.text}"
                if given.get("stream") and not path.endswith(("/render", "/input_tokens")):
                    assert any(end in answer.text for end in ENDS), answer.text
                asked += 1
    assert asked > 20
