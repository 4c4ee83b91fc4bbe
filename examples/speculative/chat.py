"""Ask with a draft model and without, whole and streamed, and then with a prediction of the answer."""

import sys

from openai import OpenAI

client = OpenAI(base_url=sys.argv[1], api_key="none")
ASKED = {
    "messages": [{"role": "user", "content": "Count to ten."}],
    "temperature": 0,
    "max_completion_tokens": 32,
}


def whole(model: str, **more: object) -> str:
    """The answer in one piece."""
    return client.chat.completions.create(model=model, **ASKED, **more).choices[0].message.content


def streamed(model: str) -> str:
    """The answer as it comes."""
    chunks = client.chat.completions.create(model=model, **ASKED, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


answer = whole("drafted", extra_body={"num_draft_tokens": 0})
print(f"without drafts: {answer!r}")
print(f"with drafts:    {whole('drafted')!r}")
print(f"streamed:       {streamed('drafted')!r}")

again = client.chat.completions.create(model="predicted", **ASKED, prediction={"type": "content", "content": answer})
details = again.usage.completion_tokens_details
print(f"predicted:      {again.choices[0].message.content!r}")
print(f"{details.accepted_prediction_tokens} tokens accepted, {details.rejected_prediction_tokens} rejected")
