"""Request parameters: one table of what each is, and the check of a request against it."""
