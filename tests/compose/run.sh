#!/bin/sh
# Proves docker-compose.yml: an engine, images, the cpu profile in a private loopback namespace, everything down again.
# Needs .venv with the development requirements, and Docker or (as root, on Debian) nothing more. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/../.."
TEST_COMPOSE=1 exec .venv/bin/python -m pytest tests/compose "$@"
