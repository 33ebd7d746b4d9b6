"""The command line, run in this process."""

import json
import platform
import re
import subprocess
import sys
from importlib import metadata

import jax
import pytest
from typer.testing import CliRunner

from sake_jax import cli


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and output; without the colours that some CI machines force on."""
    result = CliRunner().invoke(cli.app, arguments)
    return result.exit_code, re.sub(r"\x1b\[[\d;]*m", "", result.output)


def test_version():
    code, output = run("--version")
    assert code == 0
    assert output.strip() == f"sake-jax {metadata.version('sake-jax')}"


@pytest.mark.parametrize("arguments", [["--help"], ["doctor", "--help"]])
def test_help_shows_an_example(arguments):
    code, output = run(*arguments)
    assert code == 0
    assert "Example: sake-jax" in output


def test_doctor_prints_a_table():
    code, output = run("doctor")
    assert code == 0
    for word in ("Python", "jax", "orbax-checkpoint", "devices", "matmul precision", "x64", "runs"):
        assert word in output


def test_doctor_for_machines():
    code, output = run("doctor", "--json")
    assert code == 0
    found = json.loads(output)
    assert found["ok"] is True
    assert found["python"] == platform.python_version()
    assert found["packages"]["jax"] == jax.__version__
    assert {"flax", "jaxlib", "transformers"} <= set(found["packages"])
    assert "pytest" not in found["packages"]
    assert len(found["jax"]["devices"]) == jax.device_count()
    assert found["jax"]["x64"] == jax.config.jax_enable_x64


def test_doctor_reports_broken_jax(monkeypatch):
    def broken():
        raise RuntimeError("no backend [tpu]")

    monkeypatch.setattr(jax, "devices", broken)
    code, output = run("doctor", "--json")
    assert code == 1
    assert json.loads(output)["jax"]["error"] == "RuntimeError: no backend [tpu]"
    assert "[tpu]" in run("doctor")[1]


def test_doctor_reports_a_missing_package(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["no-such-package>=1"])
    code, output = run("doctor", "--json")
    assert code == 1
    assert json.loads(output)["packages"]["no-such-package"] is None


def test_help_loads_nothing_that_only_writing_needs():
    program = "import sys, sake_jax.cli; sys.exit('orbax.checkpoint' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
