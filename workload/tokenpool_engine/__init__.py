"""One shard: a continuous-batching engine for one model behind an OpenAI API. No kopf, no Kubernetes."""
