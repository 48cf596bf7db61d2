"""The same federated work through Headway's executors, a plain PyTorch loop and other simulators, side by side."""
