"""docker compose --profile cpu up, as a user meets it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from compose_project import GATEWAY, ROOT, Project

_ASK = '[{"role": "user", "content": "What is the capital of France?"}]'
_SDK = f"""
from openai import OpenAI
client = OpenAI(base_url="{GATEWAY}/v1", api_key="unused", max_retries=0, timeout=50)
ask = dict(model="smollm2-135m-instruct", messages={_ASK}, temperature=0, max_tokens=12)
whole = client.chat.completions.create(**ask)
parts = [c.choices[0].delta.content or "" for c in client.chat.completions.create(**ask, stream=True) if c.choices]
import json
print(json.dumps([whole.choices[0].message.content, "".join(parts), len(parts), whole.usage.completion_tokens]))
"""
_LANGCHAIN = f"""
from langchain_openai import ChatOpenAI
llm = ChatOpenAI(model="smollm2-135m-instruct", base_url="{GATEWAY}/v1", api_key="unused", temperature=0, max_tokens=12)
print(llm.invoke("What is the capital of France?").content)
"""


def test_it_becomes_healthy_and_serves_the_embedded_model(up: Project) -> None:
    assert up.inspect("triton-cpu")["State"]["Health"]["Status"] == "healthy"
    assert up.inspect("gateway")["State"]["Health"]["Status"] == "healthy"
    status, body = up.get("/v1/models")
    assert (status, [model["id"] for model in json.loads(body)["data"]]) == (200, ["smollm2-135m-instruct"])


def test_the_openai_sdk_chats_streaming_and_not(up: Project) -> None:
    whole, streamed, parts, tokens = json.loads(up.python(_SDK))
    assert "Paris" in whole
    assert whole == streamed
    assert parts > 3
    assert 0 < tokens <= 12


def test_langchain_invokes(up: Project) -> None:
    assert "Paris" in up.python(_LANGCHAIN)


def test_the_image_alone_serves_before_a_triton_that_exists(up: Project, tmp_path: Path) -> None:
    """By the commands of the page, with names, ports and volumes of the project."""
    page = (ROOT / "docs/how-to/deploy-compose.md").read_text().partition("## In front of an existing Triton")[2]
    commands = re.findall(r"(?m)^docker (run .*)$", re.sub(r"(?m)^    ", "", page).replace("\\\n", ""))
    check, serve = map(shlex.split, commands)
    (block,) = re.findall(r"(?ms)^```yaml\n(.*?)^```$", (ROOT / "README.md").read_text())
    values = {"triton:8001": "127.0.0.1:8001", "/models/llama3": "/models/served/tokenizer", "8192": "2048"}
    for shown, own in values.items():
        assert f" {shown}" in block
        block = block.replace(f" {shown}", f" {own}")
    (tmp_path / "gateway.yaml").write_text(block)
    tmp_path.chmod(0o755)
    (volume,) = (mount["Name"] for mount in up.inspect("gateway")["Mounts"] if mount["Destination"] == "/models")
    name, image = f"{up.name}-alone", "triton-openai-gateway:local"
    own = {"gateway": name, "$PWD:/config:ro": f"{tmp_path}:/config:ro", "/models:/models:ro": f"{volume}:/models:ro"}

    def run(words: list[str]) -> str:
        """Run a command of the page in the network of the project, where nothing is published."""
        end = words.index(image)
        if "--publish" in words:
            place = words.index("--publish")
            words, end = words[:place] + words[place + 2 :], end - 2
        network = ["--network", f"container:{up.container('net')}", "--env", "GATEWAY_PORT=9010"]
        return up.engine.docker(*(own.get(word, word) for word in words[:end]), *network, *words[end:])

    assert "ready for traffic: yes" in run(check)
    try:
        run(serve)
        ready = ("curl", "-sf", "-o", "/dev/null", "http://127.0.0.1:9010/health/ready")
        up.wait(lambda: up.inside(*ready).code == 0, 60)
    finally:
        up.engine.docker("rm", "--force", name)
