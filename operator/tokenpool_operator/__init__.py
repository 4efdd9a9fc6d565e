"""The control plane of TokenPool: it watches pools and makes their shards and routers. No torch, no request path."""
