"""Everything around the server that its operators use: the command ``gateway``, model repositories, the local stack."""
