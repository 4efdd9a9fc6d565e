"""What stands between a bare cluster and a pool that answers: the chart, the model's volume, kubectl, a chat client."""
