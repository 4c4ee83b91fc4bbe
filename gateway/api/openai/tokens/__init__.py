"""Token endpoints: ``/tokenize``, ``/detokenize``, ``/tokenizer_info`` and ``/v1/chat/completions/render``."""
