"""The pool's front door: exact token accounting, streaming pass-through, no torch and no kopf."""
