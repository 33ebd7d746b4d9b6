"""Connects the processes of a run through JAX's coordination service."""

import collections
import os
from typing import Any

import jax
from jax._src import distributed as engine  # its client has no public name

from sake_jax.checks import require
from sake_jax.sharding.ending import HEARTBEAT, LOST, set_last_words, watch

ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
"""The usual environment variables. JAX itself reads the first alone."""
WAIT = 300
"""Seconds in which all processes must have come."""
COUNT_KEY = "sake_jax/processes"
"""Where process 0 tells the others how many it expects."""


def connection_requested() -> bool:
    """Whether the environment says that this is one process of several.

    >>> if connection_requested():  # so one program serves one process and many
    ...     connect()
    """
    return ADDRESS in os.environ


def connected() -> bool:
    """Whether `connect` has joined this process with others.

    >>> connected()
    False
    """
    return engine.global_state.client is not None


def connect(
    address: str | None = None,
    processes: int | None = None,
    number: int | None = None,
    *,
    wait: int = WAIT,
) -> None:
    """Connects this process with the others of its run, before anything is computed.

    What is left out is taken from JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID;
    on Cloud TPU, Slurm, Open MPI and Kubernetes JAX finds it itself. If a process dies, the
    others end within a minute, with a message and an exit code that is not 0.

    >>> connect("10.0.0.1:1234", processes=2, number=0)  # doctest: +SKIP
    >>> connect("10.0.0.1", processes=2, number=0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: the coordinator's address (JAX_COORDINATOR_ADDRESS) must be HOST:PORT, got ...

    Args:
      address: host:port of process 0.
      processes: how many there are.
      number: of this process, from 0.
      wait: seconds in which all of them must have come.
    """
    address = address or os.environ.get(ADDRESS)
    processes = _from_environment(COUNT, processes)
    number = _from_environment(NUMBER, number)
    _check(address, processes, number)
    where = address or "the address that JAX has found"
    set_last_words(
        f"all processes must meet at {where} within {wait} s, and they did not; start as many as "
        f"{COUNT} says, each with a {NUMBER} of its own from 0 on, and check that the address is "
        "process 0's and that no firewall is in between."
    )
    try:
        jax.distributed.initialize(
            address,
            processes,
            number,
            initialization_timeout=wait,
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except (ValueError, RuntimeError) as error:
        remedy = f"set {ADDRESS}, {COUNT} and {NUMBER}, or run one process alone"
        if isinstance(error, RuntimeError):
            remedy = "start them once, before anything is computed"
        raise ValueError(f"several processes could not be started ({error}); {remedy}.") from error
    set_last_words(LOST)
    watch()
    _check_agreement()


def _from_environment(name: str, given: int | None) -> int | None:
    text = os.environ.get(name)
    if given is not None or text is None:
        return given
    require(text.isdecimal(), f"{name} must be a whole number", text, "such as 0 or 1")
    return int(text)


def _check(address: str | None, processes: int | None, number: int | None) -> None:
    if address is not None:
        host, _, port = address.rpartition(":")
        rule = f"the coordinator's address ({ADDRESS}) must be HOST:PORT"
        require(host and port.isdecimal(), rule, address, "such as 10.0.0.1:1234")
    if processes is not None:
        require(processes > 0, f"there must be processes ({COUNT})", processes, "such as 2")
    if processes is not None and number is not None:
        rule = f"a process's number ({NUMBER}) must be from 0 to {processes - 1}, for {processes}"
        require(0 <= number < processes, rule, number, f"correct it, or raise {COUNT}")


def _check_agreement() -> None:
    """Refuses a run whose processes differ in how many they expect, or in their devices."""
    state = engine.global_state
    client: Any = state.client
    if state.process_id == 0:
        client.key_value_set(COUNT_KEY, str(state.num_processes))
    # Collectives between processes that disagree would wait for ever.
    theirs = int(client.blocking_key_value_get(COUNT_KEY, WAIT * 1000))
    rule = f"all processes must be told the same number of processes ({COUNT})"
    require(theirs == state.num_processes, rule, (theirs, state.num_processes), "correct one")
    each = collections.Counter(device.process_index for device in jax.devices())
    rule, remedy = "all processes must have equally many devices", "give each the same kind of host"
    require(len(set(each.values())) == 1, rule, dict(each), remedy)
