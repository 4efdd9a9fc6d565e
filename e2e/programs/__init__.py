"""Servers of the distribution that tests and benchmarks start, not installed. Knows nothing of the product."""

from programs.debian import ProgramError
from programs.recipes import program

__all__ = ["ProgramError", "program"]
