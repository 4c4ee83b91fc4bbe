"""Settings from file and environment: what they become, and what is said when they are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.settings import (
    ConfigError,
    LimitSettings,
    ServerSettings,
    Settings,
    StateSettings,
    TimeoutSettings,
    load_settings,
)
from gateway.settings.settings_source import VARIABLES
from gateway.settings.settings_validation import RENAMED_VALUES, all_keys, validate
from gateway.settings.yaml_file import read_document
from tools.generated_part import by_hand

ONE = {"GATEWAY_MODEL": "m", "GATEWAY_TRITON_URL": "triton:8001"}
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "gateway.example.yaml"
MINIMAL = ROOT / "gateway.minimal.yaml"
PAGE = by_hand((ROOT / "docs" / "reference" / "configuration.md").read_text())


def write(folder: Path, text: str) -> Path:
    path = folder / "gateway.yaml"
    path.write_text(text)
    return path


def test_one_model_by_environment_alone() -> None:
    settings = load_settings(
        environment={
            **ONE,
            "GATEWAY_TRITON_MODEL": "my_ensemble",
            "GATEWAY_TOKENIZER": "/models/m",
            "GATEWAY_MAX_SEQ_LEN": "8192",
            "GATEWAY_PATH": "tokens",
            "GATEWAY_ENGINE_VERSION": "1.2.1",
            "GATEWAY_TEMPLATE": "/templates/m.jinja",
            "GATEWAY_ESCAPE_SPECIAL_TOKENS": "false",
            "GATEWAY_MODEL_ALIASES": "n, o",
            "GATEWAY_UNKNOWN_PARAMETERS": "ignore",
            "GATEWAY_HOST": "0.0.0.0",
            "GATEWAY_PORT": "9001",
            "GATEWAY_API_KEYS": "a, b,",
        }
    )
    (model,) = settings.models
    assert (model.name, model.triton.url, model.triton.model) == ("m", "triton:8001", "my_ensemble")
    assert (model.tokenizer, model.max_seq_len, model.path) == (Path("/models/m"), 8192, "tokens")
    assert (model.aliases, model.policies.impossible, model.policies.unknown) == (("n", "o"), "strict", "ignore")
    assert (model.template, model.escape_special_tokens) == (Path("/templates/m.jinja"), False)
    assert model.engine_version == "1.2.1"
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 9001)
    assert [key.get_secret_value() for key in settings.server.api_keys] == ["a", "b"]
    assert "b'" not in repr(settings)


def test_the_example_is_valid_and_shows_the_defaults(tmp_path: Path) -> None:
    settings = load_settings(EXAMPLE, environment={})
    assert settings.models[0].max_seq_len == 8192
    lines = EXAMPLE.read_text().splitlines()
    first = lines.index("# server:")
    shown = "\n".join(line.removeprefix("# ") for line in lines[first : lines.index("models:") - 1])
    whole = load_settings(
        write(tmp_path, shown + "\nmodels: [{name: m, triton: {url: 'triton:8001'}}]"), environment={}
    )
    assert whole == load_settings(environment=ONE)


def test_the_smallest_example_needs_no_other_setting() -> None:
    environment = {
        **ONE,
        "GATEWAY_MODEL": "llama3",
        "GATEWAY_TOKENIZER": "/models/llama3",
        "GATEWAY_MAX_SEQ_LEN": "8192",
    }
    assert load_settings(MINIMAL, environment={}) == load_settings(environment=environment)
    assert len(MINIMAL.read_text().splitlines()) == 12


def test_the_page_and_the_example_have_every_key() -> None:
    rows = dict(re.findall(r"^\| `([a-z_.\[\]]+)` \| (?:`(\w+)`)? ?\|", PAGE, re.MULTILINE))
    # Those of deployments are in the generated part of the page.
    assert list(rows) == [key for key in all_keys(Settings) if not key.startswith("deployments")]
    variables = {name: ".".join(keys).replace("model.", "models[].") for name, keys in VARIABLES.items()}
    variables["GATEWAY_KEYS"] = "auth.keys[].name"  # the row of a list is that of its first key
    assert {variable: key for key, variable in rows.items() if variable} == variables
    example = set(re.findall(r"^[# ]*-? *(\w+):", EXAMPLE.read_text(), re.MULTILINE))
    assert {key.rpartition(".")[2] for key in rows} <= example


def test_the_page_has_the_defaults() -> None:
    """As far as they are values: others, such as "from Triton", are words."""
    wrong = {}
    sections = {"server": ServerSettings, "limits": LimitSettings, "timeouts": TimeoutSettings, "state": StateSettings}
    for section, fields in sections.items():
        rows = re.findall(rf"^\| `{section}\.(\w+)` \| [^|]*\| ([^|]*) \|", PAGE, re.MULTILINE)
        for key, shown in rows:
            default = fields.model_fields[key].default
            if isinstance(default, bool | int | float | str):
                value = f"{default:.10g}" if isinstance(default, float) else str(default)
                value = value.lower() if isinstance(default, bool) else value
                wrong |= {} if shown.strip() == value else {f"{section}.{key}": (shown.strip(), value)}
        assert len(rows) > 2
    assert wrong == {}


def test_the_example_as_a_whole_is_valid(tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    models = re.sub(r"^( +)# ( *(?:- )?\w+:)", r"\1\2", text[text.index("\nmodels:") :], flags=re.MULTILINE)
    first, second = load_settings(write(tmp_path, models), environment={}).models
    assert (first.policies, first.max_stops, first.max_logits_tokens) == (second.policies, 4, 512)
    assert first.defaults.temperature == 0.6
    assert second.triton.model == "qwen_ensemble"
    own = {"vocab_size", "tokens_per_block", "template", "family", "lora", "prompt_tables", "speculative"}
    own |= {"engine_version", "mirror", "admission", "encoder"}
    assert first.mirror is not None
    assert first.mirror.to == second.name
    for key in first.model_fields_set - own - {"name", "triton", "tokenizer", "max_seq_len", "defaults"}:
        assert getattr(first, key) == getattr(second, key)


def test_a_settings_file_of_the_first_version_still_loads() -> None:
    settings = load_settings(Path(__file__).with_name("first_settings.yaml"), environment={})
    assert (settings.server, settings.timeouts) == (ServerSettings(), TimeoutSettings())
    assert settings.limits == LimitSettings()
    assert (settings.models[0].name, settings.models[0].max_seq_len) == ("llama3", 8192)


def test_a_file_with_the_environment_over_it(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "server: {port: 1}\nmodels:\n"
        "- {name: a, triton: {url: 'x:1'}, tokenizer: models/a}\n"
        "- {name: b, triton: {url: 'x:1'}}\n",
    )
    settings = load_settings(path, environment={"GATEWAY_PORT": "2"})
    assert settings.server.port == 2
    assert [model.name for model in settings.models] == ["a", "b"]
    assert settings.models[0].tokenizer == tmp_path / "models/a"
    assert [model.name for model in load_settings(path, environment=ONE).models] == ["m"]
    assert load_settings(environment={"GATEWAY_CONFIG": str(path)}).server.port == 1


def test_a_shipped_template_has_a_name_and_gives_way_to_a_file_of_that_name(tmp_path: Path) -> None:
    def template(name: str) -> Path | None:
        text = f"models: [{{name: m, triton: {{url: 'x:1'}}, template: {name}}}]"
        return load_settings(write(tmp_path, text), environment={}).models[0].template

    shipped = template("chat_templates/hermes.jinja")
    assert shipped is not None
    assert shipped.read_bytes() == (ROOT / "chat_templates" / "hermes.jinja").read_bytes()
    # Anything else is what it says, and if it is not there a start says so.
    other = ("chat_templates/other.jinja", "hermes.jinja", "a/chat_templates/hermes.jinja", "chat_templates/README.md")
    for name in other:
        assert template(name) == tmp_path / name
    assert template("/chat_templates/hermes.jinja") == Path("/chat_templates/hermes.jinja")
    own = tmp_path / "chat_templates" / "hermes.jinja"
    own.parent.mkdir()
    own.write_text("mine")
    assert template("chat_templates/hermes.jinja") == own


def test_former_values_are_read_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In a file, in the environment, and where ``gateway check`` reads the model by itself."""
    policies = "max_tokens_policy: refuse, text_streaming: refuse, structured_output_without_guidance: refuse"
    file = write(tmp_path, f"models: [{{name: m, triton: {{url: t:8001}}, {policies}}}]\n")
    environment = {**ONE, "GATEWAY_STRUCTURED_OUTPUT_WITHOUT_GUIDANCE": "refuse"}
    (model,) = load_settings(file, {}).models
    assert (model.max_tokens_policy, model.text_streaming) == ("reject", "reject")
    assert model.structured_output_without_guidance == "reject"
    assert load_settings(environment=environment).models[0].structured_output_without_guidance == "reject"
    assert [record.getMessage() for record in caplog.records] == [
        f"models[0].{key}: write reject instead of refuse"
        for key in (*RENAMED_VALUES, "structured_output_without_guidance")
    ]
    document = read_document(file)
    validate(document)
    assert document.data["models"][0]["text_streaming"] == "reject"


def test_the_file_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "models: [{name: here, triton: {url: 'x:1'}}]")
    monkeypatch.chdir(tmp_path)
    assert load_settings(environment={}).models[0].name == "here"


def test_a_kubernetes_service_named_gateway_is_not_taken_for_a_port() -> None:
    assert load_settings(environment={**ONE, "GATEWAY_PORT": "tcp://10.0.0.1:80"}).server.port == 9000


GOOD = "models: [{name: m, triton: {url: 'x:1'}}]\n"


def model(settings: str) -> str:
    return GOOD.replace("}]", f", {settings}}}]")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "models: no model is configured"),
        ("models: []", "models: no model is configured"),
        ("- a", "must contain a mapping"),
        ("a: [", "not valid YAML"),
        (GOOD + "sever: {}", "sever: unknown key."),
        (GOOD + "server: {prot: 1}", "server.prot: unknown key."),
        (
            model("task: embed, encoder: {token_ids: own, tensors: {text: words}}"),
            "models[0].encoder.token_ids: own is of models that take token ids, but tensors names an input of texts",
        ),
        (
            model("encoder: {input_types: {query: {prefx: q}}}"),
            "models[0].encoder.input_types.query.prefx: unknown key.",
        ),
        (GOOD + "server: {port: 70000}", "server.port: "),
        (GOOD + "server: {port: 1, port: 2}", "gateway.yaml:2: server.port: duplicate key"),
        (GOOD + "timeouts: {total_s: 0}", "timeouts.total_s: "),
        (GOOD + "server: {api_keys: ['']}", "server.api_keys: "),
        ("models: [{name: m}]", "models[0].triton: is required."),
        ("models: [{name: m, triton: {url: 'http://x:1'}}]", "models[0].triton.url: must be host:port"),
        ("models: [{name: m, triton: {url: x}}]", "models[0].triton.url: must be host:port"),
        (model("path: fast"), "models[0].path: "),
        (model("max_seq_len: 1"), "models[0].max_seq_len: "),
        (
            "models: [{name: m, triton: {url: 'x:1'}}, {name: m, triton: {url: 'x:1'}}]",
            "models[1].name: the name 'm' is already taken by",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(write(tmp_path, text), environment={})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "models: no model is configured"),
        ({"GATEWAY_MODEL": "m"}, "models[0].triton.url (GATEWAY_TRITON_URL): is required."),
        ({"GATEWAY_TRITON_URL": "x:1"}, "GATEWAY_MODEL: must name the served model"),
        ({**ONE, "GATEWAY_MAX_SEQ_LEN": "many"}, "models[0].max_seq_len (GATEWAY_MAX_SEQ_LEN): "),
        ({**ONE, "GATEWAY_PATH": "fast"}, "models[0].path (GATEWAY_PATH): "),
        ({**ONE, "GATEWAY_ENGINE_VERSION": "1.3rc5"}, "models[0].engine_version (GATEWAY_ENGINE_VERSION): "),
        ({**ONE, "GATEWAY_PORT": "http"}, "server.port (GATEWAY_PORT): "),
        ({"GATEWAY_CONFIG": "/nowhere/gateway.yaml"}, "/nowhere/gateway.yaml: the settings file cannot be read"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(environment: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environment=environment)
    assert says in str(caught.value)


def test_each_finding_has_its_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(write(tmp_path, GOOD + "server: {port: x}\nlimits: {a: 1}"), environment={})
    assert len(str(caught.value).splitlines()) == 2


TLS = "server: {tls: {certificate: a.crt, key: a.key}}\nmodels: [{name: m, triton: {url: 'triton:8001'}}]"


def test_files_of_certificates_are_found_beside_the_settings(tmp_path: Path) -> None:
    text = TLS.replace("'triton:8001'", "'triton:8001', tls: {ca: ca.crt, certificate: /b.crt, key: keys/b.key}")
    settings = load_settings(write(tmp_path, text), environment={"GATEWAY_TLS_KEY": "here.key"})
    assert settings.server.tls is not None
    assert (settings.server.tls.certificate, settings.server.tls.key) == (tmp_path / "a.crt", Path("here.key"))
    tls = settings.models[0].triton.tls
    assert tls is not None
    assert (tls.ca, tls.certificate, tls.key) == (tmp_path / "ca.crt", Path("/b.crt"), tmp_path / "keys/b.key")


PAIR = {"GATEWAY_TLS_CERTIFICATE": "a", "GATEWAY_TLS_KEY": "b"}


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"GATEWAY_TLS_CERTIFICATE": "a"}, "server.tls.key: is required."),
        (PAIR | {"GATEWAY_TLS_CLIENT_CA": "c"}, "client_ca requires client_certificates: required or optional."),
        (PAIR | {"GATEWAY_TLS_CLIENT_CERTIFICATES": "required"}, "client_certificates requires client_ca, the CA cert"),
        ({"GATEWAY_TRITON_TLS_CERTIFICATE": "a"}, "models[0].triton.tls: certificate and key must be set together."),
        ({"GATEWAY_TRITON_METADATA": "secret"}, "must be name=value pairs, separated by commas."),
        ({"GATEWAY_TRITON_METADATA": "Secret=x"}, "'Secret' must be a gRPC metadata name"),
        ({"GATEWAY_TRITON_METADATA": "grpc-timeout=1"}, "'grpc-timeout' is reserved for the protocol and cannot be"),
        ({"GATEWAY_TRITON_METADATA": "triton_grpc_error=true"}, "is reserved for the protocol and cannot be set."),
        ({"GATEWAY_TRITON_METADATA": "a=\u00e4"}, "the value of 'a' must be printable ASCII."),
    ],
)
def test_halves_and_contradictions_of_tls_are_refused(environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as told:
        load_settings(environment=ONE | environment)
    assert sentence in str(told.value)
    assert "=x" not in str(told.value)
