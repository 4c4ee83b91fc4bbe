"""`gateway launch`: the processes that serve deployments, checked before, watched while they run, ended in order."""
