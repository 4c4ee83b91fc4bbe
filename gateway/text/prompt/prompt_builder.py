"""Builds prompts from messages: rendered, tokenized, with control tokens from the template only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from gateway.text.prompt.chat_template import ChatTemplate
from gateway.text.prompt.control_tokens import PromptSpan, nonce, own_spans
from gateway.text.prompt.history import TemplateError
from gateway.text.prompt.prompt import Prompt
from gateway.text.prompt.request_template import RequestTemplate
from gateway.text.tokens import Tokenizer
from gateway.text.tokens.segments import NoBounds, TokenizingContext
from gateway.text.tokens.token_ids import TokenIds, pack

_KEPT = 8  # templates of requests, which are probed once


class PromptBuilder:
    """Renders conversations with one template and tokenizes them. Safe to share between threads.

    BOS comes only from the template, as with Hugging Face's ``apply_chat_template``; the tokenizer adds none, so that
    it is never there twice.

    Attributes:
        template: the model's template.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, *, escape_special_tokens: bool = True) -> None:
        """Build prompts for one served model.

        Args:
            tokenizer: of the model.
            template: of the model.
            escape_special_tokens: whether control-token text in messages, tools and documents stays plain text. When
                False, a user can write control tokens; that is for trusted callers only.
        """
        self._tokenizer = tokenizer
        self.template = template
        self._of_requests = lru_cache(maxsize=_KEPT)(lambda source: RequestTemplate(source, template))
        self._escapes = escape_special_tokens
        if escape_special_tokens:
            tokenizer.prepare_literal()

    def build(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template: ChatTemplate | RequestTemplate | None = None,
        variables: Mapping[str, Any] | None = None,
        how: TokenizingContext | None = None,
    ) -> Prompt:
        """Render and tokenize a conversation; arguments as of ``ChatTemplate.render``, and these.

        Args:
            messages: of the conversation.
            tools: tool definitions.
            documents: documents.
            add_generation_prompt: whether the assistant's turn is opened.
            continue_final_message: whether the prompt ends with the last character of the last message's content.
            template: a template to use instead of the model's.
            variables: more names for the template.
            how: how the rendered text is tokenized.

        Raises:
            TemplateError: as ``ChatTemplate.render``; also when the template does not show the message to continue.
            TokenizerError: when the text holds a lone surrogate.
        """
        template = template or self.template
        end = ""
        if continue_final_message:
            end = nonce()
            messages = [*messages[:-1], {**messages[-1], "content": _ending(messages[-1]["content"], end)}]
        marked = template.render_marked(
            messages,
            tools=tools,
            documents=documents,
            variables=variables,
            add_generation_prompt=add_generation_prompt,
        )
        if end:
            marked = _up_to(end, marked)
        parts = template.control_tokens.parts(marked)
        text = "".join(parts)
        how = how or NoBounds()
        if len(text) > how.characters:
            how.check_characters(len(text))
        spans = template.control_tokens.spans(parts) if self._escapes else None
        ids = self._tokenizer.encode_known(text, how) if spans is None else self._encode(spans, how)
        if self._escapes and self._tokenizer.normalizes_control_tokens and not self._owns_all(text, parts):
            spans = template.control_tokens.spans(parts, every=True)
            ids = self._encode(spans or (), how)
        return Prompt(
            text=text,
            ids=ids,
            escaped=spans is not None,
            bos_text=self._bos_text(ids) if self._tokenizer.adds_bos else "",
            recalled=how.recall.found if how.recall else 0,
        )

    def text(
        self,
        text: str,
        *,
        add_special_tokens: bool = True,
        frames: bool | None = None,
        how: TokenizingContext | None = None,
    ) -> Prompt:
        """Build a prompt from text, in which texts of control tokens are control tokens.

        Args:
            text: of the prompt.
            add_special_tokens: whether BOS goes first where the tokenizer has it so and the text does not have it.
            frames: as of ``ids``; a prompt whose BOS a server would add nevertheless is marked ``escaped``.
            how: how it is tokenized.

        Raises:
            TokenizerError: when the text holds a lone surrogate.
        """
        tokenizer = self._tokenizer
        how = how or NoBounds()
        ids = tokenizer.encode_known(text, how)
        lacks_bos = tokenizer.adds_bos and ids[:1] != [tokenizer.bos_id]
        if add_special_tokens and lacks_bos and tokenizer.bos_id is not None:
            text, ids = (tokenizer.bos_token or "") + text, TokenIds(pack([tokenizer.bos_id]) + ids.packed)
            lacks_bos = False
        return Prompt(
            text=text,
            ids=ids,
            escaped=lacks_bos and bool(frames),
            bos_text=self._bos_text(ids),
            recalled=how.recall.found if how.recall else 0,
        )

    def ids(self, ids: Sequence[int], *, frames: bool | None = None) -> Prompt:
        """Build a prompt from token ids, with the text from which a server makes them.

        Args:
            ids: in the vocabulary.
            frames: whether the server puts the tokenizer's special tokens around a text; None where ids travel. What no
                text becomes is marked ``escaped``.
        """
        tokenizer = self._tokenizer
        text = tokenizer.decode(ids, skip_special_tokens=False)
        prompt = Prompt(text=text, ids=tuple(ids), bos_text=self._bos_text(ids))
        if frames is None or self.as_read(prompt, frames=frames).ids == prompt.ids:
            return prompt
        # Some decoders show the space that their tokenizers put before a text, unless it is the first of all.
        bos, rest = (tokenizer.bos_token or "", ids[1:]) if list(ids[:1]) == [tokenizer.bos_id] else ("", ids)
        other = dataclasses.replace(prompt, text=bos + tokenizer.decode(rest, skip_special_tokens=False))
        same = self.as_read(other, frames=frames).ids == prompt.ids
        return other if same else dataclasses.replace(prompt, escaped=True)

    def as_read(self, prompt: Prompt, *, frames: bool, how: TokenizingContext | None = None) -> Prompt:
        """Replace the ids of a prompt by those that a server's tokenizer makes from its text.

        They differ if the template omits special tokens that the tokenizer adds, or if the tokenizer treats the start
        of a text differently from text after BOS.

        Args:
            prompt: to be sent as text.
            frames: as of ``ids``.
            how: how the text is tokenized.
        """
        if frames:
            ids = self._tokenizer.framed_known(prompt.bare_text, how)
        else:
            ids = self._tokenizer.encode_known(prompt.text, how)
        return dataclasses.replace(prompt, ids=ids)

    def of_request(self, source: str) -> RequestTemplate:
        """Make the request's own template with this tokenizer's tokens; the last few are cached."""
        return self._of_requests(source)

    def _bos_text(self, ids: Sequence[int]) -> str:
        """BOS's text where a server that tokenizes the prompt's text would add a second BOS."""
        tokenizer = self._tokenizer
        doubled = tokenizer.adds_bos and bool(ids) and ids[0] == tokenizer.bos_id
        return (tokenizer.bos_token or "") if doubled else ""

    def _owns_all(self, text: str, parts: Sequence[str]) -> bool:
        """Whether each control token of the text is the template's, by its place."""
        found, own = self._tokenizer.control_spans(text), list(own_spans(parts))
        pairs = zip(found, own, strict=False)
        return len(found) == len(own) and all(begun <= first and last <= end for (begun, end), (first, last) in pairs)

    def _encode(self, spans: Sequence[PromptSpan], how: TokenizingContext) -> TokenIds:
        pieces: list[bytes] = []
        count = 0
        for span in spans:
            if span.literal:
                ids = self._tokenizer.literal_known(span.text, how, count, at_start=not pieces)
            else:
                ids = self._tokenizer.encode_known(span.text, how, count)
            pieces.append(ids.packed)
            count += len(ids)
        return TokenIds(b"".join(pieces))


def _ending(content: Any, end: str) -> Any:
    """Content with ``end`` behind it, be it text or parts of text."""
    if isinstance(content, list):
        return [*content[:-1], {**content[-1], "text": content[-1]["text"] + end}]
    return (content or "") + end


def _up_to(end: str, rendered: str) -> str:
    """The text before the last ``end``."""
    before, mark, _ = rendered.rpartition(end)
    if not mark:
        raise TemplateError("The last message cannot be continued because the chat template does not show it.")
    return before
