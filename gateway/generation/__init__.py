"""Engine-neutral generation: what is asked of an engine, what it answers, and how answers become text.

Pure: no I/O, no web framework, no gRPC.
"""

from gateway.generation.assembler import Piece, SequenceAssembler, Usage
from gateway.generation.engine import Engine, EngineChunk, EngineError, EngineFeatures, ErrorKind
from gateway.generation.logprobs import TokenLogprob
from gateway.generation.request import GenerationRequest, Prompt, Sampling
from gateway.generation.seeds import engine_seed
from gateway.generation.stop import StopMatcher

__all__ = [
    "Engine",
    "EngineChunk",
    "EngineError",
    "EngineFeatures",
    "ErrorKind",
    "GenerationRequest",
    "Piece",
    "Prompt",
    "Sampling",
    "SequenceAssembler",
    "StopMatcher",
    "TokenLogprob",
    "Usage",
    "engine_seed",
]
