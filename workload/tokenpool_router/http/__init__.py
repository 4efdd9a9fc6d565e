"""HTTP/1.1 on both sides of the router: bytes to requests, answers to bytes. Knows neither shards' loads nor tokens."""
