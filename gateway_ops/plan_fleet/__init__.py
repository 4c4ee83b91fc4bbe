"""The size of a fleet: how many Tritons and gateways a load needs, by a simulation with measured costs."""
