"""The embedded stack: the tritonserver process and the model that it serves on this machine's CPU."""
