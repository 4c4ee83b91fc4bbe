"""Reports of a fault, for ``gateway report``: the parts of one, and all that never gets into it."""
