"""Admission: which requests run and which wait, when a model has more requests than its engines can run."""
