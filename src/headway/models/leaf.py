"""The models of LEAF (Caldas et al. 2018) for FEMNIST, CelebA and Shakespeare, initialised as PyTorch does."""

from __future__ import annotations

from torch import Tensor, nn

from headway.errors import UserError
from headway.models.staged import Staged, image


def femnist_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """5×5 convolutions of 32 and 64, padded, each with ReLU and 2×2 max-pooling, then 2048-C with ReLU.

    6,603,710 parameters (1×28×28, 62).
    """
    channels, height, width = image("femnist-cnn", shape, least=4)
    return Staged(
        nn.Sequential(nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(64 * (height // 4) * (width // 4), 2048), nn.ReLU()),
        nn.Linear(2048, classes),
    )


def celeba_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Four times: padded 3×3 convolution of 32, BatchNorm, 2×2 max-pooling, ReLU; then C.

    Pooling keeps the last row and column of an odd side, as LEAF's: 84, 42, 21, 11, 6. 31,202 parameters (3×84×84, 2).
    LEAF normalises with the batch in evaluation too; that is `--buffers keep-local`.
    """
    channels, height, width = image("celeba-cnn", shape)
    stages = []
    for before in (channels, 32, 32, 32):
        layers = (nn.Conv2d(before, 32, 3, padding=1), nn.BatchNorm2d(32), nn.MaxPool2d(2, ceil_mode=True), nn.ReLU())
        stages.append(nn.Sequential(*layers))
    stages[-1].append(nn.Flatten())
    return Staged(*stages, nn.Linear(32 * -(-height // 16) * -(-width // 16), classes))


class _Last(nn.Module):
    """The output of a recurrent layer at the last step."""

    def __init__(self, layer: nn.LSTM) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        every: Tensor = self.layer(x)[0]
        return every[:, -1]


def shakespeare_lstm(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Embedding of 8, two layers of LSTM with 256, then C at the last step: the next of C characters.

    Tokens are int64 of shape (batch, length), each below C. 819,920 parameters (80 characters; PyTorch's LSTM has two
    biases where LEAF's has one). cuDNN's LSTM cannot run under `torch.func.vmap`: on a GPU one client follows another.
    """
    if len(shape) != 1:
        raise UserError(f"model 'shakespeare-lstm' takes series of tokens (length,), not samples of shape {shape}")
    recurrent = _Last(nn.LSTM(8, 256, num_layers=2, batch_first=True))
    return Staged(nn.Embedding(classes, 8), recurrent, nn.Linear(256, classes))
