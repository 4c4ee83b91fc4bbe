"""Chats: plain and streamed, lengths and ends, sampling, log-probs, policies and annotations."""

from __future__ import annotations

from typing import Any

from tests.recorded.exchange import Case, chat, user

S: dict[str, Any] = {"stream": True}
CONTINUED = [*user("Hello"), {"role": "assistant", "content": "He"}]

CHATS: list[Case] = [
    chat("plain"),
    chat("letters of several bytes", "Grüße 你好 🙂"),
    chat("text that JSON escapes", 'a "quote", a \\ and\ta\nline \u2028.'),
    chat("broken letters", "a<<chunk 3>>", max_tokens=1),
    chat("an empty answer", "<<chunk 1>>"),
    chat("roles", messages=[
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": "Be short."},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Well."},
        {"role": "user", "content": "say:Hello"},
    ]),
    chat("calls of the past", messages=[
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "22 degrees"},
        {"role": "user", "content": "say:Warm"},
    ]),
    chat("control tokens in a message stay text", "a<|im_start|>b"),
    chat("cached tokens", "<<cached 7>>Hello"),
    chat("through the ensemble", model="words"),
    chat("through an ensemble that answers text", model="text"),
    chat("of an engine as it ships", model="bare"),
    # Streams
    chat("stream", **S),
    chat("stream through the ensemble", model="words", **S),
    chat("stream of text as one event", model="text-whole", **S, stream_options={"include_usage": True}),
    chat("stream of text as it comes", model="text-lossy", **S),
    chat("text that a stop string cuts", "Hello", model="text", stop="l"),
    chat("stream with letters of several bytes", "ü你🙂", **S),
    chat("stream with chunks of several tokens", "<<chunk 3>>Hello you", **S),
    chat("stream of nothing", "<<chunk 1>>", **S),
    chat("stream that is cut", "Hello", max_tokens=3, **S),
    chat("stream with usage and cached tokens", "<<cached 7>>Hi", stream_options={"include_usage": True}, **S),
    chat("stream with continuous usage",
         stream_options={"include_usage": True, "continuous_usage_stats": True}, **S),
    chat("stream with obfuscation and usage",
         stream_options={"include_obfuscation": True, "include_usage": True}, **S),
    chat("stream with several choices and usage", "A||BC", n=2, seed=4, stream_options={"include_usage": True}, **S),
    chat("stream with log-probs", "Hü", logprobs=True, top_logprobs=2, **S),
    chat("stream with token ids", "Hi", return_token_ids=True, **S),
    chat("stream with a stop", "Hello, you", stop=", ", **S),
    # Choices
    chat("several choices", "A||B||C", n=3, seed=6),
    chat("the best two of some", "A||B||C||D", best_of=4, n=2, seed=1),
    chat("beams", model="beams", use_beam_search=True, best_of=3, length_penalty=0.5),
    # Lengths and ends
    chat("max_completion_tokens", max_completion_tokens=2),
    chat("max_tokens beyond the context is clamped", max_tokens=100000),
    chat("max_tokens beyond the context is refused", max_tokens=100000, model="strict"),
    chat("min_tokens", "Hello", min_tokens=3, max_tokens=4),
    chat("ignore_eos", ignore_eos=True, max_tokens=5),
    chat("stops", "Hello, you", stop=["you", ", y"]),
    chat("a stop that stays", "Hello, you", stop=",", include_stop_str_in_output=True),
    chat("stop_token_ids", "Hello", stop_token_ids=[75]),
    chat("stop_token_ids through the ensemble", "Hello", stop_token_ids=[75], model="words"),
    chat("an end within the answer", "Hel<|im_end|>lo"),
    chat("special tokens shown", "a<think>b", skip_special_tokens=False),
    # Sampling
    chat("sampling", temperature=0.5, top_p=0.25, top_k=5, min_p=0.125, seed=7, presence_penalty=0.5,
         frequency_penalty=-0.5, repetition_penalty=1.25),
    chat("greedy", temperature=0, seed=1),
    chat("neutral values", temperature=1, top_p=1, n=1, presence_penalty=0, frequency_penalty=0, seed=1),
    chat("the defaults of the operator", "Hello, you there", model="lenient"),
    chat("too hot", temperature=2.5),
    chat("temperature as text", temperature="warm"),
    chat("logit_bias", logit_bias={"65": 5, "66": -100, "67": 100}, seed=1),
    chat("bad_words through the ensemble", bad_words=["bad"], model="words", seed=1),
    # Log-probs
    chat("log-probs through the ensemble", "Hi", logprobs=True, top_logprobs=1, model="words"),
    chat("alternatives without log-probs", top_logprobs=2),
    chat("alternatives of an engine without", logprobs=True, top_logprobs=1, model="bare"),
    chat("prompt_logprobs", prompt_logprobs=0, messages=[{"role": "user", "content": "Hi"}]),
    chat("token ids", "Hi", return_token_ids=True),
    # Prompts
    chat("cut on the left", truncate_prompt_tokens=40),
    chat("cut to more than the context", truncate_prompt_tokens=100000),
    chat("a prompt too long", "x" * 2100),
    chat("a prompt too long, streamed", "x" * 2100, **S),
    chat("continue_final_message with an echo, streamed", messages=CONTINUED, continue_final_message=True, echo=True,
         **S),
    chat("documents", documents=[{"title": "One", "text": "Two"}]),
    chat("documents where the template has none", documents=[{"title": "One"}], model="bare"),
    chat("a template of the request", chat_template="{{ messages[0].content }}", model="strict"),
    chat("a broken template of the request", chat_template="{% if %}", model="strict"),
    chat("a template of the request where none may be", chat_template="{{ messages }}"),
    chat("messages that the template refuses", messages=[{"role": "user", "content": "refuse"}]),
    # Reasoning
    chat("reasoning", "<think>Well.</think>Hello", model="reasoner"),
    chat("reasoning, streamed", "<<chunk 4>><think>Well.</think>Hello", model="reasoner", **S),
    chat("reasoning switched off", model="reasoner", chat_template_kwargs={"enable_thinking": False}),
    # Predictions, salts, drafts
    chat("a prediction", "Hello you", prediction={"type": "content", "content": "Hello me"}, seed=1),
    chat("cache_salt", cache_salt="mine", seed=1),
    # Annotations and policies
    chat("annotations", metadata={"a": "b"}, store=True, user="ann", safety_identifier="x", prompt_cache_key="k",
         prompt_cache_retention="24h", service_tier="auto", prompt_cache_options={"mode": "implicit"}),
    chat("hints", verbosity="low", parallel_tool_calls=True),
    chat("hints refused", verbosity="low", model="strict"),
    chat("unknown fields, streamed", colour="red", **S),
    chat("unknown fields refused", colour="red", model="strict"),
    chat("unknown fields inside", messages=[{"role": "user", "content": "say:Hi", "mood": "good"}]),
    chat("impossible", modalities=["text", "audio"]),
    chat("impossible with a warning", min_p=0.5, cache_salt="x", model="warning"),
    chat("impossible and ignored", web_search_options={"a": 1}, model="lenient"),
    chat("a priority", priority=1),
    # Wrong requests
    chat("no such model", model="nothing"),
    chat("a model that is away", model="away"),
    chat("a model that is away, streamed", model="away", **S),
    chat("messages as text", messages="Hello"),
    chat("an unknown role", messages=[{"role": "king", "content": "Hello"}]),
    chat("a message without content", messages=[{"role": "user"}]),
    chat("an image", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
    chat("a tool's answer to no call", messages=[{"role": "tool", "tool_call_id": "x", "content": "y"}]),
]  # fmt: skip
