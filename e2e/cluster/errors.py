"""The one error a person is meant to read: it says what is wrong and what to do."""


class ClusterError(RuntimeError):
    """Something that the caller must put right; shown without a traceback."""
