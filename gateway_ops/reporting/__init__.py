"""What a report of a fault has, for ``gateway report``, and what never gets into one."""
