"""`make bench-engine`: the shard engine beside vLLM and transformers serve, over HTTP, with the same requests."""
