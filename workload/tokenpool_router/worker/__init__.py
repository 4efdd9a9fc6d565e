"""The data-plane process: it carries requests and nothing else. The control process tells it what to know.

Imports stay few here: every worker of every router pays for them.
"""
