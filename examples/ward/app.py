"""What trains at every site, and what leads it: this file is the same everywhere, the data is not."""

from network import Net

import headway as hw


def data(folder):
    """This site's samples, read on this site; they never leave it."""
    return hw.read_samples(folder / "cohort.safetensors")


client = hw.client_app(model=Net, data=data, classes=3)
server = hw.server_app(
    "fedacg", model=Net, classes=3, sample=(1, 16, 16), rounds=50, precision="fp64", client_test=0.2, eval_every=5
)
