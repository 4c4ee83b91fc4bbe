"""The programs of examples/languages, built by what is installed and run against the stack."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.conftest import MODEL
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess

EXAMPLES = Path(__file__).parents[2] / "examples" / "languages"
JACKSON = [Path("/usr/share/java") / f"jackson-{part}.jar" for part in ("databind", "core", "annotations")]
JSON_NET = Path("/usr/lib/cli/Newtonsoft.Json-5.0/Newtonsoft.Json.dll")
BETWEEN_TOKENS_S = 3
BY_TOKENS = pytest.mark.parametrize("gateway", ["tokens"], indirect=True)  # what is printed does not depend on it


@dataclass(frozen=True)
class Language:
    """How an example is built and run in a folder; ``needs`` are commands and files, ``package`` is Debian's."""

    build: list[str]
    run: list[str]
    needs: list[str]
    package: str


_CLASSES = ":".join(map(str, JACKSON))
LANGUAGES = {
    "go": Language(["go", "build", "-o", "client", str(EXAMPLES / "client.go")], ["./client"], ["go"], "golang-go"),
    "java": Language(
        ["javac", "-cp", _CLASSES, "-d", ".", str(EXAMPLES / "Client.java")],
        ["java", "-cp", f"{_CLASSES}:.", "Client"],
        ["javac", *map(str, JACKSON)],
        "openjdk-17-jdk-headless libjackson2-databind-java",
    ),
    "csharp": Language(
        ["mcs", "-out:client.exe", f"-r:System.Net.Http.dll,{JSON_NET}", str(EXAMPLES / "Client.cs")],
        ["mono", "client.exe"],
        ["mcs", "mono", str(JSON_NET)],
        "mono-mcs libmono-system-net-http4.0-cil libnewtonsoft-json5.0-cil",
    ),
}


class Program:
    """A built example."""

    def __init__(self, language: Language, folder: Path) -> None:
        self._command, self._folder = language.run, folder

    def start(self, gateway: GatewayProcess, *arguments: str, key: str = "unused") -> subprocess.Popen[str]:
        """The example, asking; its output is read as it comes."""
        env = os.environ | {"OPENAI_API_KEY": key, "LC_ALL": "C.UTF-8"}
        pipe = subprocess.PIPE
        command = [*self._command, f"{gateway.url}/v1", *arguments]
        return subprocess.Popen(
            command, cwd=self._folder, env=env, stdout=pipe, stderr=pipe, text=True, encoding="utf-8"
        )

    def ask(self, gateway: GatewayProcess, *arguments: str, key: str = "unused") -> tuple[int, str, str]:
        """Its exit status, output and errors."""
        with self.start(gateway, *arguments, key=key) as running:
            try:
                out, error = running.communicate(timeout=120)
            finally:
                running.kill()
        return running.returncode, out, error


def lacking(language: Language) -> list[str]:
    """What must be installed first."""
    return [need for need in language.needs if shutil.which(need) is None and not Path(need).is_file()]


@pytest.mark.parametrize("name", LANGUAGES)
def test_its_compiler_is_installed(name: str) -> None:
    if missing := lacking(language := LANGUAGES[name]):
        pytest.skip(f"{', '.join(missing)} not installed (Debian: apt-get install {language.package})")


@pytest.fixture(scope="module", params=[name for name, language in LANGUAGES.items() if not lacking(language)])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    language = LANGUAGES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    done = subprocess.run(language.build, cwd=folder, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return Program(language, folder)


@pytest.fixture(scope="module")
def scripted(scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("scripted")
    (folder / "template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    with GatewayProcess.of_model(
        folder / "log",
        "scripted",
        scripted_triton.grpc_url,
        scripted_triton.model_dir,
        2048,
        GATEWAY_TEMPLATE=str(folder / "template.jinja"),
        GATEWAY_API_KEYS="its-key",
        GATEWAY_BETWEEN_TOKENS_TIMEOUT_S=str(BETWEEN_TOKENS_S),
    ) as process:
        yield process


@BY_TOKENS
@pytest.mark.parametrize("how", ["chat", "stream"])
def test_an_answer_is_that_of_the_same_request_by_hand(program: Program, gateway: GatewayProcess, how: str) -> None:
    question = "What is the capital of France?"
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": question}], "temperature": 0}
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=60).json()
    assert program.ask(gateway, MODEL, how, question) == (0, f"{answer['choices'][0]['message']['content']}\n", "")


@BY_TOKENS
def test_a_tool_is_called_and_its_result_told(program: Program, gateway: GatewayProcess) -> None:
    told = "get_weather(Paris)\nThe answer is 18 degrees and rain.\n"
    assert program.ask(gateway, MODEL, "tools", "What is the weather in Paris?") == (0, told, "")


@pytest.mark.parametrize("how", ["chat", "stream", "tools"])
def test_a_refusal_is_told_with_its_status_code_and_parameter(
    program: Program, scripted: GatewayProcess, how: str
) -> None:
    status, out, error = program.ask(scripted, "absent", how, "Hi", key="its-key")
    assert (status, out) == (1, "")
    assert "404" in error
    assert "The model 'absent' does not exist. GET /v1/models lists the available models." in error
    assert ". (type invalid_request_error, param model, code model_not_found)" in error


def test_a_wrong_key_is_told(program: Program, scripted: GatewayProcess) -> None:
    status, _, error = program.ask(scripted, "scripted", "chat", "Hi", key="another")
    assert (status, "401" in error, "code invalid_api_key" in error) == (1, True, True)


def test_pieces_are_shown_before_the_last_has_come(
    program: Program, scripted: GatewayProcess, scripted_triton: ScriptedServer, tmp_path: Path
) -> None:
    last = tmp_path / "last"
    scripted_triton.play(turn(text="22 °C in 東京.", until=str(last)))
    with program.start(scripted, "scripted", "stream", "Hi", key="its-key") as running:
        assert running.stdout is not None
        begin = running.stdout.read(len("22 °C"))
        last.touch()
        rest = running.stdout.read()
    assert (begin + rest, running.returncode) == ("22 °C in 東京.\n", 0)


def test_a_stream_that_breaks_off_is_no_answer(
    program: Program, scripted: GatewayProcess, scripted_triton: ScriptedServer
) -> None:
    scripted_triton.play(turn(text="It begins and", hold=True))
    status, out, error = program.ask(scripted, "scripted", "stream", "Hi", key="its-key")
    assert (status, out) == (1, "It begins and")
    assert "code timeout" in error
