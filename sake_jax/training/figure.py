"""The loss curve of a run."""

from pathlib import Path

from sake_jax.checks import require
from sake_jax.figures import panels, save
from sake_jax.journal import read_lines


def loss_curve(folder: str | Path) -> Path:
    """Draws log.jsonl as loss.png: training loss, and the bound on held-out examples."""
    folder = Path(folder)
    path = folder / "log.jsonl"
    require(path.is_file(), f"{folder} must hold log.jsonl", "nothing", "train first")
    lines = read_lines(path)
    require(lines, f"{path} must have a line", "nothing", "train longer")
    figure, ((axes,),) = panels(1, 1, (7, 4))
    millions = lambda some: [line["tokens"] / 1e6 for line in some]  # noqa: E731
    axes.plot(millions(lines), [line["loss"] for line in lines], color="0.6", label="training")
    held = [line for line in lines if "validation" in line]
    if held:
        values = [line["validation"] for line in held]
        axes.plot(millions(held), values, "ko-", ms=3, label="held out, averaged weights")
        note = f"{values[-1]:.3f} nats/token"
        if "bits_per_byte" in held[-1]:
            note += f", {held[-1]['bits_per_byte']:.3f} bits/byte"
        axes.set_title(f"{folder.name}: {note}", fontsize=10)
    axes.set(xlabel="million tokens", ylabel="nats per token")
    axes.grid(alpha=0.3)
    axes.legend()
    return save(figure, folder / "loss.png")
