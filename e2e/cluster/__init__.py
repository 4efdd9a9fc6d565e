"""A Kubernetes cluster to test on: made here (`local`), with kind, or somebody else's by its kubeconfig.

It knows nothing of TokenPool; what is put on the cluster is the business of `stack`, `demo` and the stories.
"""
