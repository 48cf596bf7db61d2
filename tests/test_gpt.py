"""The GPT: its sizes, what a place can see, tied weights, and the same gradient sample by sample and under vmap."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from headway.engine.network import Network
from headway.errors import UserError
from headway.models.gpt import CHAR, CHAR_SMALL, Size, gpt
from headway.models.networks import NETWORKS, network
from headway.models.twins import KeyedDropout, twinned
from headway.random import built
from headway.vectors import Vector

ALPHABET = 11
LENGTH = 7
NAMES = [name for name in NETWORKS if name.startswith("gpt-")]
PLAIN = Size(layers=2, heads=2, width=8, block=9)
DROPPING = Size(layers=2, heads=2, width=8, block=9, dropout=0.3)
TIED = "stages.0.tokens.weight"


def tiny(size: Size = PLAIN, length: int = LENGTH) -> nn.Module:
    """A small one in float64, with weights large enough that every place matters."""
    module = built(lambda: gpt("tiny", (length,), ALPHABET, size), 0, "test").double()
    with torch.no_grad():
        for leaf in module.parameters():
            if leaf.dim() == 2:
                leaf.mul_(15)
    return module


def tokens(*shape: int, alphabet: int = ALPHABET, seed: int = 0) -> Tensor:
    return torch.randint(alphabet, shape, generator=torch.Generator().manual_seed(seed))


def words(seed: int) -> Tensor:
    return torch.tensor([seed, 7])


class TestSizes:
    def test_parameters_are_as_documented(self) -> None:
        for name in NAMES:
            with torch.device("meta"):
                module = network(name, (80,), 80)
            counted = sum(leaf.numel() for leaf in module.parameters())
            assert f"{counted:,} parameters (80 characters)" in " ".join(str(NETWORKS[name].__doc__).split())

    def test_parameters_are_the_layers_sizes(self) -> None:
        """Embedding and places, then for each layer 12 matrices' worth of width² and two norms, then a norm."""
        for name, size in zip(NAMES, (CHAR, CHAR_SMALL), strict=True):
            with torch.device("meta"):
                module = network(name, (80,), 65)
            expected = (65 + size.block + 1) * size.width + size.layers * (12 * size.width**2 + 2 * size.width)
            assert sum(leaf.numel() for leaf in module.parameters()) == expected

    @pytest.mark.parametrize("name", NAMES)
    def test_logits_for_each_place_whatever_the_length(self, name: str) -> None:
        block = {"gpt-char": 256, "gpt-char-small": 128}[name]
        with torch.device("meta"):
            module = network(name, (80,), 65).eval()
            for length in (1, 80, block):
                logits = module(torch.zeros(3, length, dtype=torch.int64))
                assert logits.shape == (3, length, 65)

    def test_first_weights(self) -> None:
        """Deviation 0.02; of what writes into the residual stream 0.02/√(2 · layers); norms begin as identities."""
        module = built(lambda: network("gpt-char-small", (80,), 80), 0, "test")
        for name, leaf in module.named_parameters():
            if leaf.dim() == 1:
                assert (leaf == 1).all()
                continue
            writes = name.endswith(("attention.mixed.weight", "narrowed.weight"))
            expected = 0.02 / math.sqrt(4) if writes else 0.02
            assert float(leaf.detach().std()) == pytest.approx(expected, rel=0.05)

    def test_a_first_loss_is_nearly_that_of_guessing(self) -> None:
        module = built(lambda: network("gpt-char-small", (64,), 80), 0, "test")
        logits = module(tokens(4, 64, alphabet=80)).detach()
        loss = F.cross_entropy(logits.flatten(0, 1), tokens(4, 64, alphabet=80, seed=1).flatten())
        assert float(loss) == pytest.approx(math.log(80), abs=0.1)


class TestRefusals:
    @pytest.mark.parametrize(("name", "block"), [("gpt-char", 256), ("gpt-char-small", 128)])
    def test_more_tokens_than_places(self, name: str, block: int) -> None:
        words = f"model '{name}' takes at most {block} tokens a sample, not {block + 1}; use shorter blocks"
        with torch.device("meta"):
            with pytest.raises(UserError, match=f"^{words}$"):
                network(name, (block + 1,), 80)
            with pytest.raises(UserError, match=f"^{words}$"):
                network(name, (block,), 80)(torch.zeros(1, block + 1, dtype=torch.int64))

    def test_samples_that_are_not_tokens(self) -> None:
        with pytest.raises(
            UserError, match=r"'gpt-char' takes series of tokens \(length,\), not samples of shape \(3,"
        ):
            network("gpt-char", (3, 8, 8), 10)


class TestCausality:
    @pytest.mark.parametrize("changed", range(LENGTH))
    def test_a_token_changes_no_logit_before_it_and_every_one_from_it_on(self, changed: int) -> None:
        module, x = tiny(), tokens(3, LENGTH)
        other = x.clone()
        other[:, changed] = (x[:, changed] + 1) % ALPHABET
        with torch.no_grad():
            first, second = module(x), module(other)
        assert torch.equal(first[:, :changed], second[:, :changed])
        assert (first[:, changed:] != second[:, changed:]).any(-1).all()

    def test_logits_of_a_beginning_are_those_of_the_whole(self) -> None:
        module, x = tiny(), tokens(2, LENGTH)
        with torch.no_grad():
            torch.testing.assert_close(module(x[:, :4]), module(x)[:, :4], rtol=1e-12, atol=1e-12)

    def test_places_matter(self) -> None:
        """The same token everywhere: without places all logits would be alike."""
        with torch.no_grad():
            logits = tiny()(torch.full((1, LENGTH), 3))
        assert not torch.allclose(logits[0, 0], logits[0, 1])


def by_hand(module: nn.Module, x: Tensor, heads: int) -> Tensor:
    """The pass with PyTorch's own attention, from the parameters in order."""
    leaves = iter([leaf.detach() for leaf in module.parameters()])
    embedding, places = next(leaves), next(leaves)
    hidden = embedding[x] + places[: x.shape[1]]
    width = embedding.shape[1]
    for _ in range(len(list(module.stages)) - 3):
        norms = [next(leaves), next(leaves)]
        project, mix, widen, narrow = (next(leaves) for _ in range(4))
        parts = (F.layer_norm(hidden, (width,), norms[0]) @ project.T).split(width, dim=-1)
        query, key, value = (part.reshape(*x.shape, heads, -1).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + seen.transpose(1, 2).reshape(hidden.shape) @ mix.T
        hidden = hidden + F.gelu(F.layer_norm(hidden, (width,), norms[1]) @ widen.T) @ narrow.T
    return F.layer_norm(hidden, (width,), next(leaves)) @ embedding.T


def test_it_is_the_pass_with_pytorchs_attention() -> None:
    module, x = tiny(), tokens(3, LENGTH)
    with torch.no_grad():
        torch.testing.assert_close(module(x), by_hand(module, x, PLAIN.heads), rtol=1e-12, atol=1e-12)


def per_sample(module: nn.Module) -> Any:
    """The loss of one sample as a function of the parameters."""

    def loss(leaves: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(module, leaves, (x.unsqueeze(0),))
        return F.cross_entropy(logits.squeeze(0), y)

    return loss


class TestTransforms:
    def test_gradients_of_samples_under_vmap_are_those_of_a_loop(self) -> None:
        module, x, y = tiny(), tokens(5, LENGTH), tokens(5, LENGTH, seed=1)
        leaves = {name: leaf.detach() for name, leaf in module.named_parameters()}
        found = vmap(grad(per_sample(module)), in_dims=(None, 0, 0))(leaves, x, y)
        for row in range(5):
            module.zero_grad()
            F.cross_entropy(module(x[row : row + 1]).squeeze(0), y[row]).backward()
            for name, leaf in module.named_parameters():
                torch.testing.assert_close(found[name][row], leaf.grad, rtol=1e-12, atol=1e-12)
                assert leaf.grad is not None
                assert leaf.grad.any()

    @pytest.mark.parametrize("size", [PLAIN, DROPPING], ids=["plain", "dropout"])
    def test_clients_with_their_own_parameters_under_vmap(self, size: Size) -> None:
        """As `batched` calls it: parameters, samples and keys are stacked, and each client drops by its own key."""
        chosen = Network(tiny(size))
        weight = torch.ones(3).double()
        x, y = tokens(4, 3, LENGTH), tokens(4, 3, LENGTH, seed=1)
        keys = torch.stack([words(seed) for seed in range(4)])
        own = {
            name: torch.stack([leaf + 0.01 * client for client in range(4)])
            for name, leaf in chosen.parameters.leaves.items()
        }

        def loss(leaves: dict[str, Tensor], x: Tensor, y: Tensor, key: Tensor) -> Tensor:
            logits = chosen.train(Vector(leaves), {}, x, weight, key)[0].logits
            return F.cross_entropy(logits.flatten(0, 1), y.flatten())

        found = vmap(grad(loss))(own, x, y, keys)
        for client in range(4):
            alone = grad(loss)({name: leaf[client] for name, leaf in own.items()}, x[client], y[client], keys[client])
            for name, leaf in alone.items():
                torch.testing.assert_close(found[name][client], leaf, rtol=1e-12, atol=1e-12)

    def test_it_compiles_as_one_program(self) -> None:
        """Nothing depends on the values of tokens; the refusal of a longer sample is decided by its shape."""
        module, x = tiny(), tokens(3, LENGTH)
        compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-12, atol=1e-12)
        y = tokens(3, LENGTH, seed=1)
        grads = []
        for run in (module, compiled):
            module.zero_grad()
            F.cross_entropy(run(x).flatten(0, 1), y.flatten()).backward()
            grads.append([leaf.grad.clone() for leaf in module.parameters() if leaf.grad is not None])
        torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-12)

    def test_it_has_no_buffers(self) -> None:
        assert not list(tiny(DROPPING).buffers())
        assert not Network(tiny(DROPPING)).buffers


class TestNetwork:
    def test_tied_weights_are_one_leaf_and_stay_tied(self) -> None:
        module = tiny()
        chosen = Network(module)
        assert chosen.parameters.leaves.keys() == dict(module.named_parameters()).keys()
        assert TIED in chosen.parameters.leaves
        w = chosen.parameters.map(lambda leaf: 0.7 * leaf + 0.01)
        filled = chosen.module(w, chosen.buffers)
        assert filled.stages[-1].weight is filled.stages[0].tokens.weight
        assert torch.equal(filled.stages[-1].weight, w.leaves[TIED])
        x = tokens(4, LENGTH)
        torch.testing.assert_close(chosen.evaluate(w, chosen.buffers, x), filled(x).detach(), rtol=1e-12, atol=1e-12)

    def test_the_gradient_of_the_tied_matrix_is_that_of_both_its_places(self) -> None:
        module, x, y = tiny(), tokens(4, LENGTH), tokens(4, LENGTH, seed=1)
        chosen = Network(module)

        def loss(leaves: dict[str, Tensor]) -> Tensor:
            logits = chosen.train(Vector(leaves), {}, x, torch.ones(4).double(), words(0))[0].logits
            return F.cross_entropy(logits.flatten(0, 1), y.flatten())

        found = grad(loss)(chosen.parameters.leaves)
        F.cross_entropy(module(x).flatten(0, 1), y.flatten()).backward()
        for name, leaf in module.named_parameters():
            torch.testing.assert_close(found[name], leaf.grad, rtol=1e-12, atol=1e-12)

    def test_dropout_follows_the_key_and_is_absent_where_there_is_none(self) -> None:
        chosen, x, weight = Network(tiny(DROPPING)), tokens(4, LENGTH), torch.ones(4).double()
        w = chosen.parameters
        with torch.no_grad():
            one, same, other = (chosen.train(w, {}, x, weight, words(seed))[0].logits for seed in (0, 0, 1))
            assert torch.equal(one, same)
            assert not torch.allclose(one, other)
            assert torch.equal(chosen.evaluate(w, {}, x), tiny(DROPPING).eval()(x))
        assert chosen.draws
        assert not Network(tiny()).draws
        drops = sum(isinstance(layer, KeyedDropout) for layer in twinned(tiny(DROPPING)).modules())
        assert drops == 1 + 3 * DROPPING.layers, "of the embedding; of weights, attention and hidden layer"

    def test_from_any_stage_on_it_is_the_same_pass(self) -> None:
        """Through `Network` by stages, with the embedding tied to the output layer in another stage."""
        module, x, weight = tiny(DROPPING), tokens(3, LENGTH), torch.ones(3).double()
        whole, staged = Network(module), Network(module, needs=frozenset({"stages"}))
        w = whole.parameters
        with torch.no_grad():
            expected = whole.train(w, {}, x, weight, words(3))[0].logits
            found = staged.train(w, {}, x, weight, words(3))[0]
            assert torch.equal(found.logits, expected)
            assert found.stages[-1].shape == (3, LENGTH, DROPPING.width)
            for stage, hidden in enumerate(found.stages):
                assert torch.equal(staged.resume(w, {}, stage, hidden, weight, words(3)), expected)


def test_it_learns_what_depends_on_two_places() -> None:
    """A text in which each character is the sum of the two before it: one place alone says nothing."""
    text = [1, 1]
    while len(text) < 400:
        text.append((text[-1] + text[-2]) % 7)
    x = torch.tensor([text[start : start + 8] for start in range(0, 300, 3)])
    y = torch.tensor([text[start + 1 : start + 9] for start in range(0, 300, 3)])
    module = built(lambda: gpt("tiny", (8,), 7, Size(layers=2, heads=2, width=32, block=8)), 0, "test")
    optimiser = torch.optim.Adam(module.parameters(), lr=3e-3)
    for _ in range(150):
        optimiser.zero_grad()
        F.cross_entropy(module(x)[:, 2:].flatten(0, 1), y[:, 2:].flatten()).backward()
        optimiser.step()
    assert float((module(x)[:, 2:].argmax(-1) == y[:, 2:]).double().mean()) > 0.99
