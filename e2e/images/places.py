"""Where do sources lie, and where is what was built kept?"""

from pathlib import Path

from cluster import cache

ROOT = Path(__file__).parents[2]


def images_folder() -> Path:
    """Everything of this package that outlives a run; deleting it costs a rebuild, nothing else."""
    folder = cache.cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
