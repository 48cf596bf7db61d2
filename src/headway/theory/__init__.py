"""What the papers' theorems say of a problem: allowed step sizes, rates, bounds beside measured gaps."""
