"""`python -m hourmark`."""

from hourmark.cli import main

main()
