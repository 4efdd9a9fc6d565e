"""What tests share: a kubelet that plays by script, a proxy that injects faults, and how to tell that all is quiet."""
