"""Several forecasts of one job: on every mesh of some chips, and in every form of guidance."""

from sake_jax.checks import require
from sake_jax.models import mesh_splits
from sake_jax.planning.forecast import Forecast, forecast, format_gib
from sake_jax.planning.forms import forms_for
from sake_jax.planning.job import Job
from sake_jax.planning.topology import Topology


def sweep(job: Job, topology: Topology) -> list[Forecast]:
    """A forecast for every mesh that divides heads and batch, by our count, the fastest first;
    those whose parameters do not fit stand at the end."""
    sizes = [
        each
        for each in mesh_splits(job.network.H, topology.devices)
        if not job.batch % each["data"]
    ]
    forecasts = [forecast(job, topology, each, compile_it=False) for each in sizes]
    rule = f"{topology.devices} devices must divide into batch and heads"
    remedy = f"use a batch that a divisor of {topology.devices} divides"
    require(forecasts, rule, (job.batch, job.network.H), remedy)
    return sorted(forecasts, key=lambda each: (not each.parameters_fit, each.cost.seconds))


def fastest_that_fits(forecasts: list[Forecast]) -> Forecast:
    """The first of a sweep that fits by the compiler's word, with what the compiler says of it."""
    for each in forecasts:
        # The compiler takes half a minute: it is asked only where the parameters alone fit.
        if each.parameters_fit:
            compiled = forecast(each.job, each.topology, each.mesh)
            if compiled.fits:
                return compiled
    chip = forecasts[0].topology.chip
    least = min(each.parameter_bytes for each in forecasts)
    rule = f"a run must fit the {format_gib(chip.memory)} of a {chip.name}"
    got = f"parameters of {format_gib(least)} a chip, and what is computed from them"
    raise ValueError(f"{rule}, got {got}; use more chips, larger ones, a smaller batch, or int8.")


def overheads(job: Job, topology: Topology, mesh: dict[str, int]) -> dict[str, Forecast]:
    """Forecasts of the job in each of `FORMS` that its model takes, the first without guidance;
    not compiled."""
    return {
        name: forecast(job.in_form(form), topology, mesh, compile_it=False)
        for name, form in forms_for(job.sampler({}).denoiser).items()
    }
