"""The wire, shared by all engines: Triton's tensors to requests, responses to tensors, and the calls of Triton."""
