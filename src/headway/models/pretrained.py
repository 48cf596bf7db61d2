"""Models of the library transformers, so that clients can be stacked and steps be traced.

Their masks take a short way where no token is masked, for which they look at the mask's numbers: inside vmap there is
no one answer. The library lets others register an attention; Headway's is torch's fused one, like the library's own
`sdpa`, with masks that take no short way where numbers cannot be looked at.
"""

from __future__ import annotations

import sys

from torch import Tensor, nn

from headway.tracing import is_tracing, is_transformed

ATTENTION = "headway"
"""The name of the attention among those of transformers."""


def without_branches(module: nn.Module) -> None:
    """Give each part of a module that is of transformers an attention that does not look at numbers.

    Only those with the default attention, `sdpa`, are changed. What is kept for generating text is not made.
    """
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:
        return
    for part in module.modules():
        if not isinstance(part, library.PreTrainedModel):
            continue
        if getattr(part.config, "use_cache", False):
            part.config.use_cache = False
        if part.config._attn_implementation == "sdpa":
            _register()
            part.set_attn_implementation(ATTENTION)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register(ATTENTION, sdpa_attention_forward)
    AttentionMaskInterface.register(ATTENTION, _mask)


def _mask(*, attention_mask: Tensor | None = None, **settings: object) -> Tensor | None:
    """The mask of transformers' `sdpa`; whole wherever its numbers cannot be looked at."""
    from transformers.masking_utils import sdpa_mask

    if attention_mask is not None and (is_transformed() or is_tracing()):
        settings |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    mask: Tensor | None = sdpa_mask(attention_mask=attention_mask, **settings)
    return mask
