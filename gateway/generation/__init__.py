"""Engine-neutral generation: what is asked of an engine, what it answers, and how answers become text.

Pure: no I/O, no web framework, no gRPC.
"""

from gateway.generation.assembler import SequenceAssembler
from gateway.generation.engine import (
    Capability,
    Describing,
    Engine,
    EngineChunk,
    EngineError,
    EngineFeatures,
    ErrorKind,
)
from gateway.generation.logprobs import TokenLogprob
from gateway.generation.pieces import Piece, Predicted, Usage
from gateway.generation.prompt_logprobs import PromptLogprob, prompt_entries
from gateway.generation.request import GenerationRequest, Prompt
from gateway.generation.sampling_params import Guide, GuideKind, SamplingParams
from gateway.generation.seeds import engine_seed
from gateway.generation.stop import StopMatcher

__all__ = [
    "Capability",
    "Describing",
    "Engine",
    "EngineChunk",
    "EngineError",
    "EngineFeatures",
    "ErrorKind",
    "GenerationRequest",
    "Guide",
    "GuideKind",
    "Piece",
    "Predicted",
    "Prompt",
    "PromptLogprob",
    "SamplingParams",
    "SequenceAssembler",
    "StopMatcher",
    "TokenLogprob",
    "Usage",
    "engine_seed",
    "prompt_entries",
]
