"""Other gateways under the same loads, each in an environment of its own."""
