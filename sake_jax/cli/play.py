"""The command that serves a page to play with."""

import dataclasses
import webbrowser
from collections.abc import Callable
from typing import Annotated

import typer

import sake_jax as sj
from sake_jax.cli.command import command, fields, parse_fields
from sake_jax.cli.generate import prepare_prompts
from sake_jax.cli.options import RunOptions
from sake_jax.cli.printable import print_line
from sake_jax.cli.view import record_run
from sake_jax.generation import Prompt
from sake_jax.play import Draft, PlayServer, Studio
from sake_jax.play.studio import Settings

app = typer.Typer()

PORT = 8170
EXAMPLES = """Examples:

sake-jax play

sake-jax play "the dog" --guidance spread --samples 6 --open

sake-jax play --model path/to/model --length 128 --steps 64

sake-jax play --host 0.0.0.0 --port 9000
"""


@command(app, epilog=EXAMPLES)
def play(
    prompt: Annotated[str, typer.Argument(help="The beginning of the text.")] = Draft.prompt,
    *,
    draft: Annotated[Draft, fields(without=("prompt",))],
    run: Annotated[RunOptions, fields(without=("batch", "distributed", "seed"))],
    request: Annotated[sj.Request, fields(guidance="sake", temperature=0.9)],
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen at. Other than this machine's own, the page asks for the "
            "token that is printed with its address."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = PORT,
    open_page: Annotated[bool, typer.Option("--open", help="Open a browser there.")] = False,
) -> None:
    """Serve a page to play with: type a beginning, move sliders, watch texts being written.

    Texts with and without guidance, from the same seed, side by side, step by step. A slider
    compiles nothing. The address bar holds all settings; "Save as page" gives the run as one
    file. Closing the page stops the work, Ctrl-C the server.
    """
    draft = dataclasses.replace(draft, prompt=prompt)
    lm = run.load()
    studio = make_studio(lm, run, draft, request)
    studio.run(draft, request)  # refuses now what the page would refuse
    with serve(studio, host, port) as server:
        print_line(f"open {server.url}")
        print_line("Ctrl-C ends it. The first texts take some seconds: programs are compiled.")
        if open_page:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print_line("stopped")


def serve(studio: Studio, host: str, port: int) -> PlayServer:
    """The server at an address, or an error that says why it cannot listen there."""
    try:
        return PlayServer(studio, host, port)
    except (OSError, UnicodeError) as error:
        rule = f"play must be able to listen at {host}, port {port}"
        remedy = "another play may run there: give another --port, or 0 for any, or another --host"
        raise ValueError(f"{rule}, got {error}; {remedy}.") from error


def make_studio(lm: sj.LanguageModel, run: RunOptions, draft: Draft, request: sj.Request) -> Studio:
    """What the page asks for, done as the commands `generate` and `view` do it."""
    recorder = dataclasses.replace(lm)  # with a tokenizer of its own; see `Studio`

    def prepare(prompt: str, lm: sj.LanguageModel = lm) -> Prompt:
        (prepared,) = prepare_prompts(lm, [prompt], run)
        return prepared

    def record(
        request: sj.Request, draft: Draft, watch: Callable[[sj.Canvas], None]
    ) -> sj.Generation:
        own = dataclasses.replace(run, seed=draft.seed)
        prompt = prepare(draft.prompt, recorder)
        return record_run(recorder, request, prompt, draft.samples, own, watch)

    return Studio(
        lm=lm,
        name=run.model,
        usual=(draft, request),
        parse=parse_settings,
        prepare=prepare,
        record=record,
        special_tokens=run.special_tokens,
    )


def parse_settings(settings: Settings) -> tuple[Draft, sj.Request]:
    """Settings of a page, with the bounds, defaults and errors of the command's options.

    An empty value, but for the prompt's, is one that is not given.
    """
    given = {name: value for name, value in settings.items() if value or name == "prompt"}
    return parse_fields(_asked, given)


def _asked(
    *,
    draft: Annotated[Draft, fields()],
    request: Annotated[sj.Request, fields(guidance="sake", temperature=0.9)],
) -> tuple[Draft, sj.Request]:
    return draft, request
