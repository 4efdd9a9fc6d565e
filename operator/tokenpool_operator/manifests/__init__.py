"""One pure builder per kind of object: spec in, plain dict out. No builder knows what exists in the cluster."""
