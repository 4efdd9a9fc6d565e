"""The product's three images, built from its Dockerfiles and kept as archives. Knows nothing of clusters."""
