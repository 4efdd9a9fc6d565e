"""The router's other process: it knows the cluster, the keys and the other routers, and tells the workers.

No request passes here. What it does late or not at all costs freshness, never an answer.
"""
