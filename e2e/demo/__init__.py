"""`make demo`: the shortest way from an empty machine to a streamed answer of a real pool."""
