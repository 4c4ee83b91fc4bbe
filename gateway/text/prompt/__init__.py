"""Chat templates and prompts: renders messages to text and token ids.

Pure, except that template files are read, and that request templates are rendered in another process.
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
