"""The work of ``gateway plan-fleet``: sizes a fleet for a load by a simulation with measured costs."""
