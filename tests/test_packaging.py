"""What users install: the wheel's contents, its metadata, and no traces of anybody's machine."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Folder in the repository -> where it lands in site-packages.
LANDS_IN = {
    "sake_jax": "sake_jax",
    "models": "sake_jax/models",
    "conversion": "sake_jax/conversion",
}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory):
    """The built wheel, open for reading."""
    # From a copy: setuptools leaves build/ and *.egg-info behind and would reuse an old build/.
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for name in LANDS_IN:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "out", "."]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, f"the wheel did not build:\n{done.stdout}{done.stderr}"
    (path,) = (tree / "out").glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def info(wheel: zipfile.ZipFile, name: str) -> bytes:
    return wheel.read(f"sake_jax-{PROJECT['version']}.dist-info/{name}")


@pytest.mark.parametrize(
    "name",
    [
        "sake_jax/models/__init__.py",
        "sake_jax/conversion/__init__.py",
        "sake_jax/py.typed",
        "sake_jax/assets/tinystories/model.safetensors",
        "sake_jax/training/recipes/tinystories.toml",
    ],
)
def test_wheel_contains(wheel, name):
    assert name in wheel.namelist()


def test_wheel_has_one_top_level_package(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"sake_jax"}


@pytest.mark.parametrize("folder", LANDS_IN)
def test_every_package_is_in_the_wheel(wheel, folder):
    packages = [init.parent for init in (ROOT / folder).rglob("__init__.py")]
    assert packages
    wanted = {
        (LANDS_IN[folder] / package.relative_to(ROOT / folder) / "__init__.py").as_posix()
        for package in packages
    }
    missing = wanted - set(wheel.namelist())
    assert not missing, f"add to `packages` in pyproject.toml: {sorted(missing)}"


@pytest.mark.parametrize("folder", LANDS_IN)
def test_every_folder_of_modules_is_a_package(folder):
    bare = {
        module.parent.relative_to(ROOT).as_posix()
        for module in (ROOT / folder).rglob("*.py")
        if not (module.parent / "__init__.py").exists()
    }
    assert not bare, f"these folders need an __init__.py to be installed: {sorted(bare)}"


def test_console_script(wheel):
    assert "sake-jax = sake_jax.cli:main" in info(wheel, "entry_points.txt").decode()
    (script,) = metadata.entry_points(group="console_scripts", name="sake-jax")
    assert callable(script.load())


def test_versions_agree(wheel):
    version = PROJECT["version"]
    assert message_from_bytes(info(wheel, "METADATA"))["Version"] == version
    assert metadata.version("sake-jax") == version, "install again: the version has changed"
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (\S+)$", citation, re.MULTILINE) == [version]
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings, "CHANGELOG.md must have a heading"
    assert {version, "Unreleased"} & set(headings)


def test_license_travels_along(wheel):
    assert message_from_bytes(info(wheel, "METADATA"))["License-Expression"] == "Apache-2.0"
    assert info(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_no_machine_paths():
    """Absolute paths of whoever ran something: in notebooks' outputs, configs, recorded runs."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    places = "home|Users|root|tmp|var/folders|work|workspace|mnt|content"
    machine_path = re.compile(rf"(?<![\w.~:/<>-])/(?:{places})/[\w.-]+".encode())
    own = str(ROOT).encode()
    found = []
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if not name or not path.is_file():
            continue  # deleted, but not yet in the index
        text = path.read_bytes()
        hits = {hit.decode() for hit in machine_path.findall(text)}
        found += [f"{name}: {hit}" for hit in sorted(hits)]
        if own in text and not hits:
            found.append(f"{name}: {own.decode()}")
    assert not found, "use relative paths:\n" + "\n".join(found)
