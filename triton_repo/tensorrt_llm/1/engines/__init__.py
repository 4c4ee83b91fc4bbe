"""The engines that serve in production, on GPUs."""
