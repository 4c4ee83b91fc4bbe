"""``/tokenize``, ``/detokenize``, ``/tokenizer_info`` and ``/v1/chat/completions/render``: what a model would read."""
