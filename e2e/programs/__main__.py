"""`python -m programs redis-server [NAME …]` gets the programs and prints the path of each, one a line."""

import sys

from programs import ProgramError, program
from programs.recipes import RECIPES


def main() -> None:
    """Entry point."""
    names = sys.argv[1:]
    if not names or any(name not in RECIPES for name in names):
        raise SystemExit(f"usage: python -m programs NAME …, each one of {', '.join(sorted(RECIPES))}")
    try:
        for name in names:
            print(program(name))
    except ProgramError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
