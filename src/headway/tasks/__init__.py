"""What is learnt: the loss of a sample, the units that it is a mean over, and the metrics that judge a model."""

from headway.tasks.known import TASKS, task_of
from headway.tasks.metrics import METRICS, Judged, Metric
from headway.tasks.named_metrics import metric_of
from headway.tasks.task import IGNORED, Answer, Target, Task

__all__ = ["IGNORED", "METRICS", "TASKS", "Answer", "Judged", "Metric", "Target", "Task", "metric_of", "task_of"]
