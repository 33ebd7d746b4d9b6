"""Plans for TPUs, by their own compiler."""

import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from pages import PAGES, ROOT, blocks
from sake_jax import Request, cli
from sake_jax.chips import GIB
from sake_jax.conversion import model_config
from sake_jax.planning import Job, forecast, overheads, topology

# The extra `test` brings it where it is made.
pytest.importorskip("libtpu")

PROTOTYPE = [
    # chips, mesh, batch, prompt, peak GiB of a chip by an earlier hand-written sampler
    ("v5e:2x4", {"tensor": 8}, 1, 128, 2.24),
    ("v5e:2x4", {"data": 2, "tensor": 4}, 8, 1024, 4.8),
    ("v5e:4x4", {"data": 4, "tensor": 4}, 16, 128, 4.5),
    ("v5p:2x2x1", {"tensor": 4}, 1, 128, 4.5),
    ("v6e:1x1", {}, 1, 128, 16.05),
]


def llada(batch: int, prompt: int, **words) -> Job:
    request = Request(length=128, block=32, temperature=0.7, **words)
    return Job(model_config("llada-8b"), request, batch=batch, prompt=prompt)


def test_a_small_model():
    job = Job(model_config("tinystories"), Request(length=16), batch=8, prompt=16)
    result = forecast(job, topology("v5e:2x4"), {"data": 8})
    assert result.fits
    assert result.compiler_flops
    assert result.compiler_seconds is not None
    assert 0.01 < result.cost.seconds / result.compiler_seconds < 1


def test_an_arrangement_that_is_none():
    with pytest.raises(ValueError, match="must know the arrangement"):
        topology("v5e:3x5")


@pytest.mark.parametrize("chips", ["v5e:1x1", "v6e:1x1", "v5e:1x2", "v5p:2x2x2"])
def test_part_of_a_host_and_more_than_one(chips):
    sizes = chips.partition(":")[2].split("x")
    count = math.prod(map(int, sizes))
    assert topology(chips).devices == count == topology(chips, compile_it=False).devices


@pytest.mark.parametrize("kind", ["v5e", "v6e"])
def test_a_mesh_that_splits_an_axis_of_the_chips(kind):
    """8 × 2 on chips that stand 4 × 4."""
    there = topology(f"{kind}:4x4").mesh({"data": 8, "tensor": 2})
    assert dict(there.shape) == {"data": 8, "fsdp": 1, "tensor": 2}
    assert len({device.id for device in there.devices.flat}) == 16


def test_two_plans_at_once():
    """libtpu's lock file is for chips; here none is used."""
    topology("v5e:1x1")  # this process holds what it may hold
    code = "from sake_jax.planning import topology; print(topology('v5e:1x1').devices)"
    own = "ALLOW_MULTIPLE_LIBTPU_LOAD"  # the other process must say it itself
    environment = {name: value for name, value in os.environ.items() if name != own}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "1", done.stderr


def documented() -> Iterator[str]:
    """The commands of the pages and of the command line's help that plan for TPUs."""
    sources = [block.text for page in PAGES for block in blocks(page.read_text())]
    sources += [cli.plan.EXAMPLES, cli.bench.EXAMPLES]
    lines = {line.strip() for text in sources for line in text.splitlines()}
    for line in sorted(lines):
        if line.startswith(("sake-jax plan ", "sake-jax bench --plan ")):
            yield line


@pytest.mark.slow
@pytest.mark.parametrize("line", list(documented()))
def test_documented_commands(line, tmp_path, monkeypatch):
    compiles = "--compile" in line or line.startswith("sake-jax plan")
    if "h100" in line and compiles:
        pytest.importorskip("jax_cuda12_plugin")
    line = line.replace("path/to/model", str(ROOT / "tests/goldens/llada"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.app, shlex.split(line)[1:])
    assert result.exit_code == 0, result.output
    assert "What guidance adds" in result.output or "Guidance, in the paper" in result.output


@pytest.mark.slow
def test_a_model_that_does_not_fit():
    result = forecast(llada(8, 2048), topology("v5e:1x1"), {})
    assert result.fits is False
    assert result.complaint


@pytest.mark.slow
@pytest.mark.parametrize(("chips", "mesh", "batch", "prompt", "peak"), PROTOTYPE)
def test_llada_takes_no_more_than_the_prototype(chips, mesh, batch, prompt, peak):
    result = forecast(llada(batch, prompt), topology(chips), mesh)
    assert result.fits
    assert result.memory is not None
    assert result.memory.peak <= peak * GIB
    assert result.compile_seconds < 180


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [128, 1024])
def test_sake_is_nearly_free(prompt):
    result = overheads(llada(1, prompt), topology("v6e:1x1", compile_it=False), {})
    base = result["none"].cost.seconds
    added = {name: each.cost.seconds / base - 1 for name, each in result.items()}
    assert added["SAKE folded"] <= 0.005
    assert added["SAKE, window only"] <= 0.06
    assert added["SAKE, window only, input table"] <= 0.06
    assert added["classifier-free"] > 0.33


@pytest.mark.slow
def test_the_command_with_splash_attention():
    words = "plan tinystories --topology v5e:2x4 --mesh data=8 --batch 8 --length 16 --prompt 16"
    result = CliRunner().invoke(cli.app, [*words.split(), "--attention", "splash", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output[result.output.index("{") :])["fits"]
    result = CliRunner().invoke(cli.app, [*words.split(), "--attention", "flash"])
    assert result.exit_code == 1
    assert "attention must be one of" in result.output
