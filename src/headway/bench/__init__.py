"""Times the same federated work in Headway's executors, in a plain PyTorch loop and in other simulators."""
