"""The networks by name: functions of (shape of a sample, number of classes)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from headway.errors import UserError, nearest
from headway.models.gpt import gpt_char, gpt_char_small
from headway.models.leaf import celeba_cnn, femnist_cnn, shakespeare_lstm
from headway.models.lenet import gradma_lenet, lenet5
from headway.models.resnet import resnet18, resnet18_imagenet, resnet20
from headway.models.small import cnn, fednag_cnn, gradma_mlp, linear, mlp, pfl_cnn
from headway.models.staged import Staged
from headway.models.vgg import vgg9, vgg11

if TYPE_CHECKING:
    import pandas

__all__ = ["NETWORKS", "Staged", "list_models", "network"]

NETWORKS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "cnn": cnn,
    "resnet18": resnet18,
    "resnet18-imagenet": resnet18_imagenet,
    "resnet20": resnet20,
    "vgg9": vgg9,
    "vgg11": vgg11,
    "lenet5": lenet5,
    "gradma-lenet": gradma_lenet,
    "gradma-mlp": gradma_mlp,
    "femnist-cnn": femnist_cnn,
    "celeba-cnn": celeba_cnn,
    "shakespeare-lstm": shakespeare_lstm,
    "fednag-cnn": fednag_cnn,
    "pfl-cnn": pfl_cnn,
    "gpt-char": gpt_char,
    "gpt-char-small": gpt_char_small,
}


def list_models() -> pandas.DataFrame:
    """Every network that has a name, and what it is."""
    import pandas

    rows = {name: {"what": (inspect.getdoc(make) or "").partition("\n")[0]} for name, make in NETWORKS.items()}
    return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def network(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """A network by its name, for samples of a shape and a number of classes."""
    if name not in NETWORKS:
        raise UserError(f"there is no model '{name}'{nearest(name, NETWORKS)} (known: {', '.join(NETWORKS)})")
    return NETWORKS[name](shape, classes)
