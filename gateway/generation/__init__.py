"""Engine-neutral generation: requests to engines, their chunks, and the text, counts and log-probs of the answer.

Pure: no I/O, no web framework, no gRPC.
"""

from gateway.generation.assembler import Piece, SequenceAssembler
from gateway.generation.engine import (
    Capability,
    DescribingEngine,
    Engine,
    EngineChunk,
    EngineError,
    EngineFeatures,
    ErrorKind,
    Estimate,
    PromptTooLongError,
    StreamForm,
    TokenGenerator,
    context_exceeded,
    too_many_tokens,
)
from gateway.generation.request import GenerationRequest
from gateway.generation.sampling_params import SamplingParams
from gateway.generation.stop import StopMatcher
from gateway.generation.token_counts import PredictedCounts, Usage
from gateway.generation.token_logprobs import PromptTokenLogprob, TokenLogprob, prompt_entries

__all__ = [
    "Capability",
    "DescribingEngine",
    "Engine",
    "EngineChunk",
    "EngineError",
    "EngineFeatures",
    "ErrorKind",
    "Estimate",
    "GenerationRequest",
    "Piece",
    "PredictedCounts",
    "PromptTokenLogprob",
    "PromptTooLongError",
    "SamplingParams",
    "SequenceAssembler",
    "StopMatcher",
    "StreamForm",
    "TokenGenerator",
    "TokenLogprob",
    "Usage",
    "context_exceeded",
    "prompt_entries",
    "too_many_tokens",
]
