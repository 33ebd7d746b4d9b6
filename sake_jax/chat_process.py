"""Renders chats with a model's own template: a program by itself, started by `chat_template`.

A template is a program that came with a checkpoint. It may loop for ever, or write gigabytes. So it
runs here, in a process with little memory and little time, and in Jinja's sandbox besides. Nothing
of the library is imported, to start quickly. The environment has the flags, filters and functions
of the one that transformers renders templates in.
"""

import datetime
import json
import sys
from typing import Any

import jinja2
import jinja2.ext
import jinja2.parser
import jinja2.sandbox

MEMORY = 512 * 2**20
"""Bytes of address space beyond those that the program begins with."""
LONGEST = 2**24
"""Characters of all chats together."""


class Generation(jinja2.ext.Extension):
    """{% generation %}, which marks an assistant's words: they are rendered like any others."""

    tags = {"generation"}  # noqa: RUF012, as Jinja wants it

    def parse(self, parser: jinja2.parser.Parser) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """JSON as it is; Jinja's own filter would write &, < and > in another way."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def environment() -> jinja2.Environment:
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return made


def limit(seconds: int) -> None:
    """Bounds this process, where the system can: the kernel ends it after these seconds of work."""
    try:
        import resource
    except ImportError:  # Windows: then the parent's patience is all there is
        return
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        with open("/proc/self/statm") as file:
            there = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # macOS, which does not keep such a limit either
        return
    resource.setrlimit(resource.RLIMIT_AS, (there + MEMORY, there + MEMORY))


def render(job: dict[str, Any]) -> list[str]:
    """The chats of a job as texts."""
    template = environment().from_string(job["template"])
    texts = []
    for messages in job["chats"]:
        texts.append(template.render(messages=messages, **job["names"]))
        if sum(map(len, texts)) > LONGEST:
            raise jinja2.TemplateError(f"it writes more than {LONGEST:,} characters")
    return texts


def main() -> None:
    job = json.load(sys.stdin)
    limit(job["seconds"])
    try:
        answer = {"texts": render(job)}
    except MemoryError:
        answer = {"error": f"it takes more than {MEMORY / 2**20:.0f} MB of memory"}
    except Exception as error:  # whatever a template does, it is said in words
        answer = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
