"""Clients of an older major version, to prove that the API serves them too. Knows nothing of the product."""
