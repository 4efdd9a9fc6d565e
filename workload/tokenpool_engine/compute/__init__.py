"""Everything that needs torch: from a folder of weights to the next token of each request."""
