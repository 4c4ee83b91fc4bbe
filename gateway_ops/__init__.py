"""The command ``gateway`` and its work: model repositories, engines, checks, comparisons, the local stack."""
