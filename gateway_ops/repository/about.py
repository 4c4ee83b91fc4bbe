"""The comments at the top of rendered configurations."""

from __future__ import annotations

from gateway.config.deployment_settings import DeploymentSettings

_ABOUT = {
    "ensemble": """\
Text in, text out, over preprocessing, engine and postprocessing.

A step may leave out an output that is mapped here, and a later step runs without the optional input that it would have
been (tritonserver 2.51 and newer): log-probs, counts and the like are absent unless asked for.""",
    "preprocessing": """\
Text to token ids: the tokenizer is tokenizer_dir/tokenizer.json. Image and video tensors are not declared.

QUERY and REQUEST_OUTPUT_LEN are required all the same: were they so for Triton, a request without them would end
without any answer.""",
    "postprocessing": """\
Token ids to text. Pieces with the same request id are decoded as one growing text; at most state_capacity texts are
kept, each for state_expiry_seconds after its last piece. BATCH_INDEX and SEQUENCE_INDEX are ours and optional.

One instance, and in order: streamed pieces must not overtake each other.""",
    "tensorrt_llm_bls": """\
The ensemble's steps in one Python model, with the ensemble's tensors and a few more. What it cannot do is refused by
name.

One instance serves max_concurrent_requests at once. A request whose engine says nothing for engine_silence_seconds is
stopped and answered with an error. With accumulate_tokens, text_output is the whole text so far while streaming.""",
    "tensorrt_llm": """\
The engine step: token ids in, token ids out.""",
}
_EXTENSIONS = {
    "ensemble": """

Inputs and outputs beyond TensorRT-LLM's are ours, optional, and mere wiring of what the steps have anyway.
finish_reason comes with the last response of each answer, asked for or not: postprocessing ends a text by it.""",
    "preprocessing": """

RETURN_FINISH_REASON is there to be mapped; its output is always true: postprocessing ends a text by the reason.""",
    "postprocessing": """
FINISH_REASON, ours as well, says that a piece is the last one.""",
    "tensorrt_llm": """
Inputs and outputs beyond TensorRT-LLM's are ours, optional, and no client depends on them.

A parameter value "${NAME}" is read from the environment when the model is loaded; an unset variable means "not given",
which is a load error for engine and gpt_model_path. Clients that read this configuration over gRPC see the name.""",
}


def about_model(stock: str, deployment: DeploymentSettings) -> str:
    """What the configuration of a model says of itself.

    Args:
        stock: the model's stock name.
        deployment: that it is rendered from.
    """
    extensions = "" if deployment.engine == "tensorrt" else _EXTENSIONS.get(stock, "")
    source = (
        f"Tensors of TensorRT-LLM {deployment.trtllm}. Written by `gateway repo build`, deployment {deployment.name!r}."
    )
    return f"{_ABOUT[stock]}{extensions}\n\n{source}"
