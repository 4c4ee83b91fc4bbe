"""Behaviour that all families share: which guide a turn gets, and which parser goes with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from gateway.families.family import Parser, Preparation, Turn
from gateway.families.guided import GuidedParser
from gateway.families.markers import Markers
from gateway.families.parsing import ContentParser
from gateway.families.schemas import calls_schema, object_schema, schema_guide
from gateway.families.structural import Format, after_reasoning, either, guide_format, tag_guide
from gateway.families.thinking import ThinkTags
from gateway.generation.sampling_params import Guide


class BaseFamily(ABC):
    """A family whose reasoning, if it has any, stands between think tags before the answer.

    Attributes:
        name: for settings and logs.
        tags: around its reasoning; None: it does not reason.
        markers: the tags, and those around its calls; none of them ever reaches a client of a turn with tools.
        stop: texts of special tokens that end the turn besides the model's end ids.
        signs: a template of this family holds all texts of one of these groups.
        model_types: ``model_type`` or architectures of ``config.json`` that say it best: no other family has them.
        older_types: those of the family that this one follows; they say it together with a sign.
        shared_types: those that many families build on; they count where the template takes tools and tells no more.
    """

    name: str
    tags: ThinkTags | None = None
    markers: Markers = Markers()
    stop: tuple[str, ...] = ()
    signs: tuple[tuple[str, ...], ...] = ()
    model_types: frozenset[str] = frozenset()
    older_types: frozenset[str] = frozenset()
    shared_types: frozenset[str] = frozenset()

    @property
    def reasons(self) -> bool:
        """Whether its models write reasoning apart from the answer."""
        return self.tags is not None

    def claims(self, architectures: Sequence[str], model_type: str | None, template_source: str) -> bool:
        """Whether a model is of this family.

        Args:
            architectures: of ``config.json``.
            model_type: of ``config.json``.
            template_source: its chat template, empty when it has none.
        """
        return self.rank(architectures, model_type, template_source) > 0

    def rank(self, architectures: Sequence[str], model_type: str | None, template_source: str) -> int:
        """How surely a model is of this family: 0 for not at all; arguments as of ``claims``."""
        signed = any(all(text in template_source for text in group) for group in self.signs)
        types = {*architectures, model_type}
        if signed:
            return 2 if (self.model_types | self.older_types).isdisjoint(types) else 4
        if not self.model_types.isdisjoint(types):
            return 3
        return int("tools" in template_source and not self.shared_types.isdisjoint(types))

    @abstractmethod
    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of calls in the family's own format, and of reasoning before them."""

    def native_calls(self, turn: Turn, *, demanded: bool) -> Format | None:
        """The family's own call format as a structural tag, text around calls being free.

        Args:
            turn: names the tools; only strict ones are held to their schema.
            demanded: whether the answer is one call instead.

        Returns:
            The format; None where it cannot be written as a structural tag.
        """
        del turn, demanded
        return None

    def prepare(self, turn: Turn, prompt: str = "") -> Preparation:
        """Say what generation must know; see ``Family.prepare``."""
        guide, guided = self._guide(turn, prompt)
        special = set(self.markers.texts) if turn.calls else set()
        if self.tags:
            special.update((self.tags.open, self.tags.close))
        return Preparation(guide=guide, special=frozenset(special), stop=self.stop, guided=guided)

    def parser(self, turn: Turn, preparation: Preparation, prompt: str, *, eager: bool = False) -> Parser:
        """Make a parser for one answer; see ``Family.parser``."""
        guide = preparation.guide
        # A guide from the first token on leaves no room for reasoning, whatever the prompt ends with; a structural tag
        # of the request's own leaves what it says.
        tags = None if guide is not None and guide.kind != "structural_tag" else self.tags
        if guide is not None and guide == turn.response:
            prompt = ""
        if turn.calls and preparation.guided and not self._natively(turn):
            return GuidedParser(turn, markers=self.markers, tags=tags, prompt=prompt)
        if not turn.calls or (guide is not None and guide.kind != "structural_tag"):
            return ContentParser(turn, tags=tags, prompt=prompt)
        return self.native_parser(turn, prompt, eager=eager or preparation.guided)

    def _guide(self, turn: Turn, prompt: str) -> tuple[Guide | None, bool]:
        """The guide, and whether it guarantees every call."""
        if not turn.calls:
            return (self._content_guide(turn.response, turn, prompt) if turn.response else None), False
        if turn.choice == "required":
            return self._calls_guide(turn, prompt), self._can_guide(turn)
        if self._natively(turn):
            return self._strict_guide(turn, prompt), True
        if turn.response is None:
            return None, False
        schema = object_schema(turn.response)
        if schema is None or not self._can_guide(turn):
            return self._content_guide(turn.response, turn, prompt), False
        return self._schema_guide(calls_schema(turn.tools, parallel=turn.parallel, response=schema), turn, prompt), True

    def _natively(self, turn: Turn) -> bool:
        """Whether calls are guided in the family's own format."""
        return (
            turn.choice == "auto"
            and "structural_tag" in turn.guide_types
            and (turn.response is None or turn.response.kind != "structural_tag")
            and any(tool.strict for tool in turn.tools)
            and self.native_calls(turn, demanded=False) is not None
        )

    def _can_guide(self, turn: Turn) -> bool:
        return "json_schema" in turn.guide_types or "structural_tag" in turn.guide_types

    def _calls_guide(self, turn: Turn, prompt: str) -> Guide | None:
        if not self._can_guide(turn):
            return None
        return self._schema_guide(calls_schema(turn.tools, parallel=turn.parallel), turn, prompt)

    def _schema_guide(self, schema: Format, turn: Turn, prompt: str) -> Guide:
        return self._content_guide(schema_guide(schema), turn, prompt)

    def _content_guide(self, guide: Guide, turn: Turn, prompt: str) -> Guide:
        """A guide of the answer proper, behind the reasoning where the engine can."""
        if guide.kind == "structural_tag" or "structural_tag" not in turn.guide_types:
            return guide
        if self.tags is None:
            return guide if guide.kind in turn.guide_types else tag_guide(guide_format(guide))
        return tag_guide(after_reasoning(self.tags, prompt, guide_format(guide)))

    def _strict_guide(self, turn: Turn, prompt: str) -> Guide:
        content = self.native_calls(turn, demanded=turn.response is not None)
        if content is None:
            raise ValueError(f"{self.name} has no structural tag for calls")
        if turn.response is not None:
            content = either(content, guide_format(turn.response))
        return tag_guide(after_reasoning(self.tags, prompt, content) if self.tags else content)
