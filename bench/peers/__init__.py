"""The programs that a benchmark compares with, each in an environment of its own. Knows no benchmark."""

from peers.environments import TRANSFORMERS_SERVE, VLLM, Peer, find, install

__all__ = ["TRANSFORMERS_SERVE", "VLLM", "Peer", "find", "install"]
