"""What does a router cost? Proxies side by side, between the same clients and the same stand-in for shards."""
