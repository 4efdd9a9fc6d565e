"""The contract: names, spec, status and wire bodies. It knows nobody and does no I/O."""
