"""The OpenAI API of a shard: bodies, text, answers. Knows the engine, not what computes."""
