"""Commands whose options come from the fields of a dataclass.

A parameter of a command that is annotated with `Annotated[SomeDataclass, fields()]` becomes one
option for each field, and the command gets the finished dataclass:

    @command(app, epilog="Example: ...")
    def generate(*, request: Annotated[Request, fields(guidance="sake")]) -> None: ...

A field's metadata is what `typer.Option` takes: its help, its bounds, and as "flags" its names
where they are not the field's own.
"""

import contextlib
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.main import get_command

from sake_jax.cli.errors import plain_errors

Function = Callable[..., Any]
KEYWORD = inspect.Parameter.KEYWORD_ONLY
"""All parameters are: then one without a default may follow one with."""


@dataclasses.dataclass(frozen=True)
class Fields:
    """Which fields of a dataclass are options of a command, and their defaults there."""

    names: tuple[str, ...]
    """Of the fields; all of them if empty."""
    without: tuple[str, ...]
    defaults: dict[str, Any]
    changes_of: type | None = None
    """The dataclass, where the command wants only what was given, as a dictionary."""

    def parameters(self, table: type) -> list[inspect.Parameter]:
        """One parameter for each field, as typer reads them."""
        types = typing.get_type_hints(table)
        unknown = {*self.names, *self.without, *self.defaults} - types.keys()
        assert not unknown, f"{table.__name__} has no fields {unknown}"
        return [
            self._parameter(field, types[field.name])
            for field in dataclasses.fields(table)
            if field.name in (self.names or types) and field.name not in self.without
        ]

    def _parameter(self, field: dataclasses.Field[Any], kind: Any) -> inspect.Parameter:
        about = dict(field.metadata)
        option = typer.Option(*about.pop("flags", ()), **about)
        default = self.defaults.get(field.name, field.default)
        if self.changes_of is not None:  # what is not given stays as it is elsewhere
            kind, default = kind | None, None
        annotation = Annotated[kind, option]
        return inspect.Parameter(field.name, KEYWORD, default=default, annotation=annotation)


def fields(names: Sequence[str] = (), *, without: Sequence[str] = (), **defaults: Any) -> Fields:
    """The fields of a command's dataclass that are its options.

    Args:
      names: of the fields; all by default. The others keep the dataclass's values.
      without: fields that are no options.
      **defaults: of this command, where they are not the dataclass's.
    """
    return Fields(tuple(names), tuple(without), defaults)


def changes(table: type) -> Fields:
    """The same for a command that wants a dictionary of what was given, and nothing else.

    For commands that change something that exists, such as a row of the paper's tables.
    """
    return Fields((), (), {}, changes_of=table)


def command(app: typer.Typer, name: str | None = None, **about: Any) -> Callable[[Function], Any]:
    """Registers a function as a command of `app`; errors in it are told in one line.

    Args:
      app: which gets the command.
      name: of the command; the function's by default.
      **about: for `app.command`, such as its epilog.
    """

    def register(function: Function) -> Function:
        app.command(name, **about)(with_options(function))
        return function

    return register


def with_options(
    function: Function, errors: Callable[[], contextlib.AbstractContextManager[None]] = plain_errors
) -> Function:
    """The function with an option for each field in place of each parameter with `Fields`.

    Args:
      function: of a command.
      errors: what becomes of errors in it, also where a dataclass refuses its values.
    """
    signature = inspect.signature(function, eval_str=True)
    tables: dict[str, tuple[type, Fields, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        table, chosen = _table(parameter.annotation)
        if chosen is None:
            parameters.append(parameter.replace(kind=KEYWORD))
            continue
        options = chosen.parameters(table)
        tables[parameter.name] = table, chosen, [option.name for option in options]
        parameters += options

    @functools.wraps(function)
    def run(**values: Any) -> Any:
        with errors():
            for name, (table, chosen, options) in tables.items():
                given = {option: values.pop(option) for option in options}
                if chosen.changes_of is not None:
                    values[name] = {key: val for key, val in given.items() if val is not None}
                else:
                    values[name] = table(**given)
            return function(**values)

    # typer reads the signature and, apart from it, the annotations.
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def parse_fields(function: Function, given: Mapping[str, str]) -> Any:
    """What a function returns for options by their names, read as the command line reads them.

    Raises ValueError with the words of the command line where it refuses one.

    Args:
      function: with parameters as those of a command.
      given: values of options, such as {"top_p": "0.9"}.
    """
    app = typer.Typer(add_completion=False)
    app.command()(with_options(function, contextlib.nullcontext))
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    try:
        return get_command(app).main(arguments, standalone_mode=False)
    except Exception as error:
        # Of typer's or of click's, whichever this typer reads options with.
        words = getattr(error, "format_message", None)
        if words is None:
            raise
        raise ValueError(words()) from error


def _table(annotation: Any) -> tuple[type, Fields | None]:
    """The dataclass of a parameter, and which of its fields are options; None if it has none."""
    for extra in getattr(annotation, "__metadata__", ()):
        if isinstance(extra, Fields):
            return extra.changes_of or typing.get_args(annotation)[0], extra
    return type(None), None
