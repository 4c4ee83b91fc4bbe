"""Folders without a tokenizer.json: what comes out of their conversion is what transformers and the originals make."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from sentencepiece import SentencePieceProcessor

from gateway.settings.extras import pip_install
from gateway.text.prompt import load_template
from gateway.text.tokens import Tokenizer, TokenizerError, conversion
from gateway.text.tokens.token_bytes import ByteLevelDecoder, SentencePieceDecoder
from gateway.text.untrusted_work import Helper
from tests.lazy_module import LazyModule
from tests.tokens.test_by_transformers import QUICK, TEXTS, check_ids, check_texts
from tests.tokens.test_families import SOURCES
from tests.tokens.vocabularies import FOLDERS, llama2, llama3, sentence_piece, tekken, tiktoken_file, write

if TYPE_CHECKING:
    import transformers
else:
    transformers = LazyModule("transformers")

pytestmark = pytest.mark.usefixtures("one_helper")
KIND = pytest.mark.parametrize("kind", FOLDERS)
USER = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return functools.cache(lambda kind: FOLDERS[kind](tmp_path_factory.mktemp(kind)))


@pytest.fixture(scope="module")
def ours(folder: Any) -> Any:
    return functools.cache(lambda kind: Tokenizer.from_folder(folder(kind)))


@pytest.fixture(scope="module")
def theirs(folder: Any) -> Any:
    return functools.cache(lambda kind: transformers.AutoTokenizer.from_pretrained(str(folder(kind))))


@KIND
def test_texts_become_the_same_ids(kind: str, ours: Any, theirs: Any) -> None:
    check_ids(ours(kind), theirs(kind))


@KIND
def test_ids_become_the_same_text_at_once_and_one_by_one(kind: str, ours: Any, theirs: Any) -> None:
    check_texts(ours(kind), theirs(kind))


@pytest.mark.parametrize("kind", ["llama2", "gemma", "unigram"])
def test_sentencepiece_itself_makes_the_same_ids(kind: str, ours: Any, folder: Any) -> None:
    original = SentencePieceProcessor(model_file=str(folder(kind) / "tokenizer.model"))

    # transformers takes NEL (U+0085) for a space in what it makes of unigram models; SentencePiece does not.
    @QUICK
    @given(TEXTS.map(lambda text: "a" + text.replace("▁", "_").replace("<0x", "<").replace("\x85", "")))
    def check(text: str) -> None:
        assert ours(kind).encode_literal(text, at_start=True) == original.encode(text)

    check()


@KIND
def test_special_tokens_and_template_are_those_of_the_folder(kind: str, ours: Any, theirs: Any) -> None:
    mine, other = ours(kind), theirs(kind)
    assert (mine.bos_token, mine.bos_id) == (other.bos_token, other.bos_token_id)
    assert (mine.eos_token, mine.eos_ids) == (other.eos_token, (other.eos_token_id,))
    assert mine.adds_bos == (other("a").input_ids[0] == other.bos_token_id)
    assert mine.is_special(other.eos_token_id)
    assert mine.vocab_size == len(other)
    assert isinstance(mine.decoder, ByteLevelDecoder if kind in {"llama3", "tekken"} else SentencePieceDecoder)
    rendered = load_template(mine).render(USER)
    assert rendered == other.apply_chat_template(USER, tokenize=False)


@KIND
def test_a_tokenizer_file_made_by_transformers_is_the_same(kind: str, ours: Any, theirs: Any, tmp_path: Path) -> None:
    theirs(kind).save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()
    made = Tokenizer.from_folder(tmp_path)
    assert [made.encode(text) for text in SOURCES] == [ours(kind).encode(text) for text in SOURCES]
    assert (made.bos_id, made.eos_ids, made.adds_bos) == (ours(kind).bos_id, ours(kind).eos_ids, ours(kind).adds_bos)
    assert made.chat_template == ours(kind).chat_template


def refusal(folder: Path) -> str:
    with pytest.raises(TokenizerError) as rejected:
        Tokenizer.from_folder(folder)
    text = str(rejected.value)
    assert str(folder) in text
    return text


def test_a_folder_without_any_vocabulary_is_refused(tmp_path: Path) -> None:
    assert "has no tokenizer.json, nor tokenizer.model or tekken.json" in refusal(tmp_path)
    assert "does not exist. Set a folder of this machine" in refusal(tmp_path / "org" / "model")


@pytest.mark.parametrize("package", ["transformers", "sentencepiece", "tiktoken"])
def test_without_the_extra_its_installation_is_told(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    text = refusal(tekken(tmp_path))
    assert pip_install("transformers") in text
    assert "save_pretrained" in text


@pytest.mark.parametrize(
    ("name", "content", "kind", "config", "said"),
    [
        # The class puts no space before a text, and the model wants one.
        (
            "tokenizer.model",
            lambda: sentence_piece("bpe"),
            "gemma",
            {"tokenizer_class": "GemmaTokenizer"},
            'transformers and sentencepiece encode "Hello, world!',
        ),
        # Nothing says how the text of a model that is not Llama 3 is split.
        (
            "tokenizer.model",
            tiktoken_file,
            "mistral",
            {"tokenizer_class": "PreTrainedTokenizerFast"},
            "only the text splitting of Llama 3",
        ),
        ("tokenizer.model", lambda: b"{}", "mistral", {}, "transformers cannot convert its tokenizer"),
        ("tekken.json", lambda: b"{}", "mistral", {}, "transformers cannot convert its tokenizer"),
    ],
)
def test_a_vocabulary_that_is_not_converted_exactly_is_refused(
    tmp_path: Path, name: str, content: Any, kind: str, config: dict[str, str], said: str
) -> None:
    write(tmp_path, name, content(), kind, **config)
    assert said in refusal(tmp_path)


def test_code_of_the_folder_is_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    folder = write(
        tmp_path / "model",
        "tokenizer.model",
        sentence_piece("bpe"),
        "own",
        auto_map={"AutoTokenizer": ["own.Own", None]},
    )
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\nclass Own: pass\n", encoding="utf-8")
    assert "transformers cannot convert its tokenizer" in refusal(folder)
    assert not ran.exists()


def test_a_changed_vocabulary_is_read_anew(tmp_path: Path) -> None:
    """tiktoken would keep copies of files by their paths."""
    llama3(tmp_path)
    before = Tokenizer.from_folder(tmp_path).encode("ab")
    lines = tiktoken_file().splitlines(keepends=True)
    swapped = {b"YQ==": b"Yg==", b"Yg==": b"YQ=="}
    parts = (line.split() for line in lines)
    (tmp_path / "tokenizer.model").write_bytes(
        b"".join(b"%s %s\n" % (swapped.get(token, token), rank) for token, rank in parts)
    )
    assert Tokenizer.from_folder(tmp_path).encode("ab") != before


def test_names_of_the_folder_count_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "Helper", Helper)  # as a gateway has it
    llama2(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 1]}), encoding="utf-8")
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"pad_token": "</s>"}), encoding="utf-8")
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.eos_ids == (2, 1)
    assert tokenizer.special_tokens["pad_token"] == "</s>"


def test_the_server_does_not_import_what_converts() -> None:
    loaded = "import sys, gateway.app; print(*{'transformers', 'sentencepiece', 'tiktoken'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert said.stdout.split() == []
