"""``/tokenize``, ``/detokenize``, ``/tokenizer_info`` and ``/v1/chat/completions/render``: tokens without an answer."""
