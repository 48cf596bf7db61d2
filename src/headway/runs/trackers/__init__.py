"""Writers for other programs' dashboards: TensorBoard and MLflow, each an optional extra."""
