"""Chat templates and prompts: messages to text and ids. Pure, but for two things that are asked for.

A template file is read, and the template of a request is rendered in a process of its own.
"""

from gateway.text.prompt.chat_template import ChatTemplate, load_template
from gateway.text.prompt.history import TemplateAbilities, TemplateError, history
from gateway.text.prompt.prompt_builder import PromptBuilder
from gateway.text.prompt.request_template import RequestTemplate

__all__ = [
    "ChatTemplate",
    "PromptBuilder",
    "RequestTemplate",
    "TemplateAbilities",
    "TemplateError",
    "history",
    "load_template",
]
