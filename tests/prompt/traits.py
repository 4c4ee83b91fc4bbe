"""Chat templates in words of our own, with the traits of published ones: what they do with calls, texts and systems."""

from __future__ import annotations

import functools
from pathlib import Path

from gateway.text.prompt import ChatTemplate
from gateway_ops.local_stack import smollm2
from tests.tokens.build import byte_level

SHIPPED = Path(__file__).parents[2] / "chat_templates"

_OPEN = "{% if add_generation_prompt %}<a>{% endif %}"
_ALTERNATING = (
    "{% set ns = namespace(user=true) %}{% for m in messages if m.role == 'user' or"
    " (m.role == 'assistant' and not m.tool_calls) %}"
    "{% if (m.role == 'user') != ns.user %}{{ raise_exception('Roles must alternate.') }}{% endif %}"
    "{% set ns.user = not ns.user %}{% endfor %}"
)
_JOINED_SYSTEMS = (
    "{% for m in messages if m.role == 'system' %}{{ m.content }}\n{% endfor %}"
    "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}"
)

TRAITS = {
    # Reasoning of answers since the last question only; text is looked into, so null content is an error.
    "qwen3": (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
        "{% set ns = namespace(last=0) %}{% for m in messages if m.role == 'user' %}{% set ns.last = loop.index0 %}"
        "{% endfor %}{% for m in messages %}{% set thoughts = '' %}"
        "{% if m.reasoning_content is defined and m.reasoning_content is not none %}"
        "{% set thoughts = m.reasoning_content %}{% elif '</think>' in m.content %}{% set thoughts = 'x' %}{% endif %}"
        "<{{ m.role }}>{% if thoughts and loop.index0 > ns.last %}<think>{{ thoughts }}</think>{% endif %}"
        "{{ m.content.lstrip('\n') }}{% for c in m.tool_calls or [] %}<tool_call>"
        '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments if c.function.arguments is string'
        " else c.function.arguments | tojson }}}</tool_call>{% endfor %}{% endfor %}" + _OPEN
    ),
    # The key of the reasoning has to be there: undefined is not none.
    "null_reasoning": (
        "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and m.reasoning_content is not none %}"
        "{{ m.reasoning_content.strip() }}{% endif %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}" + _OPEN
    ),
    # Content is measured, so it is never null; thoughts are parts of it; the system message stands first.
    "ministral3": (
        _ALTERNATING.replace("in messages", "in messages[(1 if messages[0].role == 'system' else 0):]")
        + "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
        "{% if m.role == 'system' and not loop.first %}{{ raise_exception('No system here.') }}{% endif %}"
        "{% if m.role == 'tool' %}[R]{{ m.content | string }}{% else %}"
        "{% if not m.content and not m.tool_calls %}{{ raise_exception('Nothing said.') }}{% endif %}"
        "[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% elif m.content | length > 0 %}"
        "{% for b in m.content %}{% if b.type == 'text' %}{{ b.text }}{% elif b.type == 'thinking' %}"
        "[THINK]{{ b.thinking }}[/THINK]{% endif %}{% endfor %}{% endif %}{% for c in m.tool_calls or [] %}"
        "[CALL]{{ c.function.name }}[ARGS]{{ c.function.arguments if c.function.arguments is string"
        " else c.function.arguments | tojson }}{% endfor %}{% endif %}{% endfor %}"
    ),
    # Null content tells a call from an answer; arguments are text; of several system messages the last one stays.
    "deepseek_r1": (
        "{% set ns = namespace(system='') %}{% for m in messages if m.role == 'system' %}"
        "{% set ns.system = m.content %}{% endfor %}{{ ns.system }}{% for m in messages %}"
        "{% if m.role == 'user' %}<U>{{ m.content }}{% elif m.role == 'tool' %}<R>{{ m.content }}"
        "{% elif m.role == 'assistant' %}{% for c in m.tool_calls or [] %}"
        "{{ '<A><call>' + c.function.name + '\n' + c.function.arguments + '</call>' }}{% endfor %}"
        "{% if m.content is not none %}<A>{{ m.content.split('</think>')[-1] }}<E>{% endif %}{% endif %}{% endfor %}"
    ),
    "deepseek_v31_own": (
        _JOINED_SYSTEMS + "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
        "<call>{{ c.function.name }}<sep>{{ c.function.arguments | tojson }}</call>{% endfor %}{% endfor %}"
    ),
    # Parts of content are read, and names stand in place of roles.
    "kimi": (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}"
        "<{{ m.name or m.role }}>{% if m.role == 'tool' %}## Return of {{ m.tool_call_id }}\n{% endif %}"
        "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}{{ p.text }}{% endfor %}"
        "{% endif %}{% for c in m.tool_calls or [] %}"
        "<call>{{ c.function.name }}:{{ loop.index0 }}<args>{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    ),
    # One call a message, and no text beside it.
    "llama31": (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<{{ m.role }}>"
        "{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('One call only.') }}{% endif %}"
        "{% set f = m.tool_calls[0].function %}"
        '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}'
        "{% else %}{{ m.content | trim }}{% endif %}{% endfor %}" + _OPEN
    ),
    # The first of several calls, and no word of the others; system messages only in front.
    "gpt_oss_first": (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}"
        "{% if m.role == 'system' %}{% if loop.first %}{{ m.content }}{% endif %}"
        "{% elif m.tool_calls %}{% set f = m.tool_calls[0].function %}"
        "<call {{ f.name }}>{{ f.arguments | tojson }}"
        "{% else %}<{{ m.role }}>{% if m.thinking %}<analysis>{{ m.thinking }}{% endif %}{{ m.content }}{% endif %}"
        "{% endfor %}"
    ),
    # Ids of nine characters, turns that alternate, and the system message in a last question only.
    "mistral_nemo": (
        "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"
        "{% set messages = messages[1:] if system else messages %}" + _ALTERNATING + "{% for m in messages %}"
        "{% if m.role == 'user' %}[INST]{% if loop.last and system %}{{ system }}\n\n{% endif %}{{ m.content }}[/INST]"
        "{% elif m.tool_calls %}[CALLS]{% for c in m.tool_calls %}"
        "{% if c.id | length != 9 %}{{ raise_exception('Nine characters!') }}{% endif %}"
        '{{ (c.function | tojson)[:-1] }}, "id": "{{ c.id }}"}{% endfor %}'
        "{% elif m.role == 'assistant' %}{{ m.content }}</s>"
        "{% elif m.role == 'tool' %}[RESULTS]{{ m.content }} {{ m.tool_call_id }}[/RESULTS]"
        "{% else %}{{ raise_exception('Only users and assistants.') }}{% endif %}{% endfor %}"
    ),
    # Tools are declared, and the calls of the history are lost.
    "granite33": (
        "{% if tools %}{{ tools | tojson }}{% endif %}"
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}" + _OPEN
    ),
    # Calls are written only while tools are declared.
    "calls_with_tools": (
        "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{% if tools %}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endif %}{% endfor %}"
    ),
    # Neither system messages nor tools.
    "gemma2": (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported.') }}{% endif %}"
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Roles must alternate.') }}{% endif %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"
    ),
    # Other roles than two are passed over.
    "silent": "{% for m in messages if m.role in ['user', 'assistant'] %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    # Arguments one by one: they have to be an object.
    "glm": (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}{% for k, v in c.function.arguments.items() %}"
        "<key>{{ k }}</key><value>{{ v }}</value>{% endfor %}</call>{% endfor %}{% endfor %}"
    ),
    # Arguments as they are: an object would be written as Python writes it.
    "functionary": (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
        ">>>{{ c.function.name }}\n{{ c.function.arguments }}{% endfor %}{% endfor %}"
    ),
    # Content is a list always, as templates of models with images have it.
    "only_parts": (
        "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p['text'] }}{% endfor %}"
        "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    ),
    # A result without the name of its tool is refused.
    "needs_result_names": (
        "{% for m in messages %}<{{ m.role }}>{% if m.role == 'tool' and not m.name %}{{ raise_exception('Whose?') }}"
        "{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    ),
    # A name on a result is refused.
    "refuses_result_names": (
        "{% for m in messages %}<{{ m.role }}>{% if m.name %}{{ raise_exception('No names.') }}"
        "{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    ),
    # ChatML for any role, without a place for tools.
    "any_role": (
        "{%- if not messages or messages[0]['role'] not in ['system', 'developer'] -%}"
        "{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' -}}{%- endif -%}"
        "{%- for message in messages -%}"
        "{%- set role = 'system' if message['role'] == 'developer' else message['role'] -%}"
        "{{- '<|im_start|>' + role + '\\n' + (message['content'] or '') + '<|im_end|>\\n' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
    ),
    "smollm2": smollm2.CHAT_TEMPLATE,
}
TRAITS |= {path.stem: path.read_text(encoding="utf-8") for path in sorted(SHIPPED.glob("*.jinja"))}


@functools.cache
def template(name: str) -> ChatTemplate:
    """One of them, compiled."""
    return ChatTemplate(TRAITS[name], byte_level())
