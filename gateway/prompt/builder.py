"""Messages to a prompt: rendered, tokenized, and free of control tokens that only the template may write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.generation.request import Prompt
from gateway.prompt.escaping import ControlEscaper, Stretch, unused_marker
from gateway.prompt.template import ChatTemplate
from gateway.tokens import Tokenizer


class PromptBuilder:
    """Renders conversations with one template and tokenizes them. Safe to share between threads.

    The template is trusted with BOS: what it writes is in the ids, and nothing is added to it, as Hugging Face's
    ``apply_chat_template`` does it. So BOS is never there twice because a tokenizer would add its own.
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
        self._template = template
        self._escaper = ControlEscaper(tokenizer.control_tokens if escape_special_tokens else ())
        if escape_special_tokens:
            tokenizer.prepare_literal()

    def build(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """Render and tokenize a conversation; arguments as of ``ChatTemplate.render``.

        Raises:
            TemplateError: as ``ChatTemplate.render``.
            TokenizerError: when the text holds a lone surrogate.
        """
        data: dict[str, Any] = {"messages": messages, "tools": tools, "documents": documents, "variables": variables}
        if not self._escaper.occurs_in(list(data.values())):
            text = self._template.render(**data, add_generation_prompt=add_generation_prompt)
            ids = self._tokenizer.encode(text)
            return Prompt(text=text, ids=tuple(ids), bos_text=self._bos_text(ids))
        marker = unused_marker(data, self._template.source)
        marked = {key: self._escaper.mark(value, marker) for key, value in data.items()}
        rendered = self._template.render(**marked, add_generation_prompt=add_generation_prompt)
        stretches = self._escaper.split(rendered, marker)
        ids = [index for number, stretch in enumerate(stretches) for index in self._encode(stretch, number == 0)]
        return Prompt(
            text="".join(stretch.text for stretch in stretches),
            ids=tuple(ids),
            escaped=any(stretch.literal for stretch in stretches),
            bos_text=self._bos_text(ids),
        )

    def _bos_text(self, ids: Sequence[int]) -> str:
        """BOS's text where a server that tokenizes the prompt's text would add a second BOS."""
        tokenizer = self._tokenizer
        doubled = tokenizer.adds_bos and ids[:1] == [tokenizer.bos_id]
        return (tokenizer.bos_token or "") if doubled else ""

    def _encode(self, stretch: Stretch, at_start: bool) -> list[int]:
        if stretch.literal:
            return self._tokenizer.encode_literal(stretch.text, at_start=at_start)
        return self._tokenizer.encode(stretch.text)
