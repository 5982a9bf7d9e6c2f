"""`python -m muster.cli` is `muster`."""

from muster.cli.main import run

run()
