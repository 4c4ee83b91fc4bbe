"""``/tokenize``, ``/detokenize``, ``/tokenizer_info`` and ``/v1/chat/completions/render``: a model's tokens without an answer."""
