"""Entry point of `python -m hourmark`."""

from hourmark.cli import main

main()
