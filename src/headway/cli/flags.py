"""Fields of records as command-line flags: those of `Scenario`, and those of a command's own options."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, TypeVar, get_type_hints

import typer

from headway.cli.completion import of_setting
from headway.errors import UserError, shown
from headway.scenario import Scenario, explained, field_type

Command = TypeVar("Command", bound=Callable[..., object])
_NO_FLAG = ("method",)
_NUMBERS = {int: "an integer", float: "a number"}


def settings() -> list[dataclasses.Field[object]]:
    return [setting for setting in dataclasses.fields(Scenario) if setting.name not in _NO_FLAG]


def _parameter(setting: dataclasses.Field[object]) -> inspect.Parameter:
    kind, _ = field_type(setting.name)
    text = explained(setting)
    if setting.default is not None and kind is not bool:
        text += f"; {setting.default} by default"
    name = "--" + setting.name.replace("_", "-")
    flag = f"{name}/--no-{name[2:]}" if kind is bool else name
    option = typer.Option(
        flag,
        help=text,
        show_default=False,
        metavar=f"<{kind.__name__}>" if kind in _NUMBERS else None,
        rich_help_panel=setting.metadata["group"].capitalize(),
        autocompletion=None if kind is bool else of_setting(setting.name, setting.metadata.get("among", ())),
    )
    read: type = str if kind in _NUMBERS else kind
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[read | None, option]
    )


def value(name: str, given: object) -> object:
    """A flag's text as the setting's number; that of another setting as it is."""
    kind, _ = field_type(name)
    if kind not in _NUMBERS:
        return given
    try:
        return kind(given)
    except ValueError:
        flag = "--" + name.replace("_", "-")
        raise UserError(f"{flag} is {shown(given)}; it must be {_NUMBERS[kind]}") from None


def with_settings(command: Command) -> Command:
    """The command with one flag for each setting; those given reach it as the dictionary `settings`."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "settings"]
    flags = [_parameter(setting) for setting in settings()]
    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]

    def wrapper(**values: object) -> object:
        given = {flag.name: values.pop(flag.name) for flag in flags}
        chosen = {name: value(name, text) for name, text in given.items() if text is not None}
        return command(**values, settings=chosen)

    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__signature__ = inspect.Signature([*keyword, *flags])  # type: ignore[attr-defined]
    return wrapper  # type: ignore[return-value]


def with_options(command: Command) -> Command:
    """The command with a flag for each field of its parameters that are dataclasses, after its other parameters.

    The command gets the flags as these dataclasses.
    """
    signature = inspect.signature(command, eval_str=True)
    groups = {one.name: one.annotation for one in signature.parameters.values() if _is_record(one.annotation)}
    own = [one for one in signature.parameters.values() if one.name not in groups]
    flags = [option for record in groups.values() for option in _options(record)]
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in [*own, *flags]]

    def wrapper(**values: object) -> object:
        records = {
            name: kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)})
            for name, kind in groups.items()
        }
        return command(**values, **records)

    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return wrapper  # type: ignore[return-value]


def _is_record(annotation: object) -> bool:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def _options(record: type) -> list[inspect.Parameter]:
    """A parameter for each field of a dataclass, whose annotation is a typer option."""
    hints = get_type_hints(record, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(record)
    ]
