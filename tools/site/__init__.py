"""Settings of the documentation's site."""
