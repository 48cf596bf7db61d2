"""A small GPT learns to write Shakespeare, split by speaker and by play, without the texts leaving their owners.

python examples/shakespeare.py

It needs the data set `shakespeare-text` (docs/data.md says where its file goes). Without it, four speakers with a few
lines each, which are in this file, show the same.
"""

from __future__ import annotations

import torch

import headway as hw

LENGTH = 32
"""Characters in a block."""
SETTINGS = {
    **{"model": "gpt-char-small", "cohort_size": 4, "steps": 5, "batch_size": 8, "rate": 0.1, "weight_decay": 0.0},
    "executor": "serial",  # for so few rounds a choice among all executors would take longer than the rounds
}

LINES = {
    "Hamlet": "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer The slings and "
    "arrows of outrageous fortune, Or to take arms against a sea of troubles And by opposing end them.",
    "Macbeth": "To-morrow, and to-morrow, and to-morrow, Creeps in this petty pace from day to day, To the last "
    "syllable of recorded time; And all our yesterdays have lighted fools The way to dusty death.",
    "Portia": "The quality of mercy is not strain'd, It droppeth as the gentle rain from heaven Upon the place "
    "beneath: it is twice blest; It blesseth him that gives and him that takes.",
    "Jaques": "All the world's a stage, And all the men and women merely players: They have their exits and their "
    "entrances; And one man in his time plays many parts, His acts being seven ages.",
}


def tell(split: str, result: hw.Result) -> None:
    """First and last perplexity; where each client has test blocks of its own, the worst tenth of the clients too."""
    first, last = result.records[0], result.records[-1]
    worst = f", worst tenth of the clients {last['client_worst']:.1f}" if "client_worst" in last else ""
    print(
        f"{split:8} {result.scenario.clients:4} clients: perplexity {first['perplexity']:.1f} after one round, "
        f"{last['perplexity']:.1f} after {last['round']} ({last['bits_per_character']:.2f} bits a character{worst})"
    )


def from_the_data_set(rounds: int) -> None:
    """The task is inferred: the data set is made of blocks of tokens."""
    for split in ("speaker", "play"):
        partition = "natural" if split == "speaker" else f"natural:{split}"
        scenario = hw.scenario(data=f"shakespeare-text:{LENGTH}", partition=partition, eval_samples=300, **SETTINGS)
        tell(split, hw.simulate("fedacg", scenario, rounds=rounds))


def from_the_lines_above(rounds: int) -> None:
    """One's own texts: characters as numbers, the target of each place is the next one."""
    alphabet = sorted(set("".join(LINES.values())))

    def blocks(text: str) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = torch.tensor([alphabet.index(letter) for letter in text])
        windows = numbers.unfold(0, LENGTH + 1, LENGTH // 2)
        return windows[:, :-1], windows[:, 1:]

    pairs = [blocks(text) for text in LINES.values()]
    clients = [(x[:-1], y[:-1]) for x, y in pairs]
    test = (torch.cat([x[-1:] for x, _ in pairs]), torch.cat([y[-1:] for _, y in pairs]))
    tell("speaker", hw.simulate("fedacg", clients=clients, test=test, task="tokens", rounds=rounds, **SETTINGS))


def main(rounds: int = 10) -> None:
    try:
        from_the_data_set(rounds)
    except hw.UserError as fault:
        print(f"{fault}\nso this runs on four speeches instead:")
        from_the_lines_above(rounds)


if __name__ == "__main__":
    main()
