"""What is called while a run goes on: a user's own functions and objects, early stopping, the best model, trackers."""
