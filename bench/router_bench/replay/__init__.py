"""Which policy serves best? Public traces replayed on simulated shards, through the sharding that the router uses."""
