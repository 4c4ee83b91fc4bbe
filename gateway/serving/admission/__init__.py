"""Which requests run and which wait for their turn, when a model has more of them than its engines can run."""
