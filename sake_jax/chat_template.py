"""Chats in a model's own form: its template, rendered in a process that has bounds."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sake_jax import chat_process

SECONDS = 10
"""Of processor time that a template may take: real ones take a thousandth for a chat."""
PATIENCE = 300
"""Seconds by the clock, for systems that do not count a process's own time."""

Chat = Sequence[Mapping[str, str]]
"""Messages, each with a role and a content."""


def render_chats(tokenizer: Any, chats: Sequence[Chat], *, reply: bool = True) -> list[str]:
    """Chats as texts, by the tokenizer's template.

    >>> import sake_jax as sj
    >>> tokenizer = sj.load("tinystories").tokenizer
    >>> tokenizer.chat_template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    >>> render_chats(tokenizer, [[{"role": "user", "content": "the dog"}]])
    ['<the dog>']

    Args:
      tokenizer: with a chat template.
      chats: any number of them; they are rendered by one process, which takes a moment to start.
      reply: whether the beginning of the model's answer is added.
    """
    names = {"tools": None, "documents": None, "add_generation_prompt": reply}
    job = {
        "template": tokenizer.get_chat_template(),
        "chats": [[dict(message) for message in chat] for chat in chats],
        "names": names | tokenizer.special_tokens_map,
        "seconds": SECONDS,
    }
    answer = _answer(job)
    if "error" in answer:
        remedy = "mend the template, or write the prompt in the model's form yourself"
        rule = "the model's chat template must render the chat"
        raise ValueError(f"{rule}, got {answer['error']}; {remedy}.")
    return answer["texts"]


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    # Not as a module of the package: that would import JAX first.
    program = [sys.executable, "-P", str(Path(chat_process.__file__))]
    endless = {"error": f"no end after {SECONDS} seconds of processor time"}
    try:
        done = subprocess.run(
            program, input=json.dumps(job), capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return endless
    if done.returncode < 0:  # the kernel ended it
        return endless
    if done.returncode > 0:
        return {"error": done.stderr.strip()[-500:] or f"exit code {done.returncode}"}
    return json.loads(done.stdout)
