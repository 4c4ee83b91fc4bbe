"""Request parameters: the table of all parameters, and the check of a request against it."""
