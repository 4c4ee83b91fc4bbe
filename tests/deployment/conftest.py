"""Which modules of this folder a Python version can run."""

import sys

# Docker Compose comes from a wheel that Python 3.10 has no release of; 3.11 and 3.12 check the compose files.
collect_ignore = [] if sys.version_info >= (3, 11) else ["test_compose.py"]
