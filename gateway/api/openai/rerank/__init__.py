"""The endpoints ``/v1/rerank``, ``/v2/rerank`` and ``/rerank``."""
