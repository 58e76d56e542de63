"""`python -m betae`, the same as `betae`."""

from betae.cli import main

main()
