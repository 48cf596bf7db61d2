"""What a shell completes: methods with their options, models, data sets, splits, and the words of a setting.

`headway completion bash` prints the script that asks for it. The shell starts `headway` with the line so far, and
typer answers with a value and its help on each line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypedDict

import typer
from rich.markup import escape

from headway.cli.remembered import remembered
from headway.errors import UserError, nearest

VARIABLE = "_HEADWAY_COMPLETE"
"""Is set where a shell asks."""

Words = dict[str, str]
"""What may be written, and a line of help on each."""
Items = list[tuple[str, str]]


class Piece(TypedDict):
    """A method or a modifier: what it is for, and its options with what they may be."""

    help: str
    options: Words


class Names(TypedDict):
    """All that has a name."""

    methods: dict[str, Piece]
    modifiers: dict[str, Piece]
    models: Words
    data: Words
    partitions: Words
    samplings: Words


def names() -> Names:
    """All names, remembered: torch is not imported for a word that is completed."""
    return remembered("names", _collected)


def _collected() -> Names:
    from headway.cli import catalogue

    return catalogue.names()


def _beginning(words: Mapping[str, str], begun: str) -> Items:
    return [(word, escape(text)) for word, text in words.items() if word.startswith(begun)]


def methods(incomplete: str) -> Items:
    """What a method's name can go on with: a name, an option after the colon, a modifier after a plus."""
    known = names()
    before, plus, last = incomplete.rpartition("+")
    pieces = {**known["modifiers"], **known["methods"]} if plus else known["methods"]
    name, colon, given = last.partition(":")
    if not colon:
        found = {name: one["help"] for name, one in pieces.items()}
        return [(before + plus + word, text) for word, text in _beginning(found, last)]
    done, comma, begun = given.rpartition(",")
    written = {option.partition("=")[0] for option in done.split(",")}
    options = pieces[name]["options"] if name in pieces else {}
    left = {f"{option}=": text for option, text in options.items() if option not in written}
    return [(f"{before}{plus}{name}:{done}{comma}{word}", text) for word, text in _beginning(left, begun)]


def of_setting(name: str, among: tuple[str, ...]) -> Callable[[str], Items] | None:
    """What completes the value of a setting; None for one that is free, such as a number."""
    kinds: dict[str, Literal["models", "data", "partitions", "samplings"]] = {
        "model": "models",
        "data": "data",
        "partition": "partitions",
        "sampling": "samplings",
    }
    if name in kinds:
        return lambda incomplete: _beginning(names()[kinds[name]], incomplete)
    return (lambda incomplete: _beginning(dict.fromkeys(among, ""), incomplete)) if among else None


_ASK = (
    "COLUMNS=1000 _TYPER_COMPLETE_FISH_ACTION=get-args "
    '_TYPER_COMPLETE_ARGS="$line" _TYPER_COMPLETE_WORD_TO_COMPLETE="$word" '
    f"{VARIABLE}=complete_fish headway 2>/dev/null"
)
"""typer's answer for fish is the plain one: a value, a tab and its help on each line."""

_BASH = f"""\
_headway_complete() {{
    local line="${{COMP_LINE:0:COMP_POINT}}" value help word before
    word="${{line##* }}"
    COMPREPLY=()
    while IFS=$'\\t' read -r value help; do
        [[ -n $value ]] && COMPREPLY+=("$value")
    done < <({_ASK})
    before="${{word%"${{word##*[:=]}}"}}"  # bash completes what stands after a colon or an equals sign
    COMPREPLY=("${{COMPREPLY[@]#"$before"}}")
    if [[ ${{#COMPREPLY[@]}} -eq 1 && ${{COMPREPLY[0]}} == *[:=] ]]; then compopt -o nospace; fi
}}
complete -o default -F _headway_complete headway
"""

_ZSH = f"""\
#compdef headway
_headway_complete() {{
    local line="${{(j: :)words[1,CURRENT]}}" word="${{words[CURRENT]}}" value help
    local -a finished begun finished_shown begun_shown
    while IFS=$'\\t' read -r value help; do
        if [[ $value == *[:=] ]]; then
            begun+=("$value") begun_shown+=("$value${{help:+  $help}}")
        elif [[ -n $value ]]; then
            finished+=("$value") finished_shown+=("$value${{help:+  $help}}")
        fi
    done < <({_ASK})
    if (( $#finished + $#begun )); then
        (( $#finished )) && compadd -l -Q -d finished_shown -a finished
        (( $#begun )) && compadd -l -Q -S '' -d begun_shown -a begun
    else
        _files
    fi
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
compdef _headway_complete headway
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH}


def script(shell: str) -> str:
    """What a shell reads so that it completes."""
    if shell not in SCRIPTS:
        raise UserError(f"shell is '{shell}'; allowed: {', '.join(SCRIPTS)}{nearest(shell, SCRIPTS)}")
    return SCRIPTS[shell]


def ready_for_shell() -> None:
    """Make typer answer a shell that asks."""
    typer.completion.get_completion_inspect_parameters()  # which sets it up
