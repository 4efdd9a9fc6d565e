"""One request's way through the router: admitted, leased, sent, passed on, and where a shard is lost, gone on with."""
