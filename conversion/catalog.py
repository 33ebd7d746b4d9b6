"""Where a model is: in the box, in a folder, or on the hub; and its config alone."""

from importlib import resources
from pathlib import Path

from sake_jax import text
from sake_jax.checks import require
from sake_jax.conversion import families
from sake_jax.conversion.source import CONFIG, read_config
from sake_jax.models import ModelConfig


def built_in() -> dict[str, Path]:
    """Folders of the models that come with the package, by name.

    >>> from sake_jax.conversion import built_in
    >>> list(built_in())
    ['countdown-3', 'countdown-4', 'tinystories', 'tinystories-causal']
    """
    place = Path(str(resources.files("sake_jax"))) / "assets"
    return {file.parent.name: file.parent for file in sorted(place.glob(f"*/{CONFIG}"))}


def locate(path_or_name: str | Path) -> Path:
    """The folder of a model; a hub name is downloaded, without any of its code.

    >>> from sake_jax.conversion import locate
    >>> locate("tinystories").name
    'tinystories'
    """
    path = Path(path_or_name).expanduser()
    name, own = str(path_or_name), built_in()
    if name in own:
        return own[name]
    if path.exists():
        return path
    names = ", ".join(own)
    rule = f"the model must be one of {names}, a folder that exists, or a hub name 'owner/model'"
    require(name.count("/") == 1 and not name.startswith((".", "/", "~")), rule, name, "check it")
    from huggingface_hub import snapshot_download

    try:
        wanted = [CONFIG, "*.safetensors", "*.safetensors.index.json", *text.FILES]
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # network, permission, or no such name: the library has many
        remedy = "check the name and the network, or download the folder and pass its path"
        raise ValueError(f"{rule}, got {name!r} ({error}); {remedy}.") from error


def model_config(name: str | Path) -> ModelConfig:
    """The config of a model without its weights, offline.

    >>> from sake_jax.conversion import model_config
    >>> model_config("GSAI-ML/LLaDA-8B-Instruct").network.V
    126464

    Args:
      name: of a published model whose shapes we know, with or without its owner on the hub; of
        one in the box; or a folder with a config.json.
    """
    known = families.published()
    short = str(name).rpartition("/")[2].lower()
    if short in known:
        return known[short]
    folder = built_in().get(str(name), Path(name).expanduser())
    rule = f"the model must be {', '.join(known)}, or a folder with a {CONFIG}"
    require(folder.is_dir(), rule, str(name), "check the name")
    described = read_config(folder)
    return families.recognise(described).config(described)
