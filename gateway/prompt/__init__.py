"""Chat templates and prompts: messages to text and ids. Pure: reads a template file when asked to load one."""

from gateway.prompt.abilities import TemplateAbilities
from gateway.prompt.builder import PromptBuilder
from gateway.prompt.errors import TemplateError
from gateway.prompt.history import history
from gateway.prompt.template import ChatTemplate, load_template

__all__ = ["ChatTemplate", "PromptBuilder", "TemplateAbilities", "TemplateError", "history", "load_template"]
