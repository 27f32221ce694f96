"""Build back end of the package: scikit-build-core, given a folder with all that it needs.

In the repository the C sources and the licences are in the folder above this one; in an sdist they
are in `source/`. Both are built from a temporary folder:

    pyproject.toml  README.md  LICENSE  NOTICES  spec_connector/   and for an sdist: backend.py
                                                                   source/  the C sources

Holds: a wheel has libspec_connector.so, or the build fails.
Tests: tests/install/test_package.py
"""
import contextlib
import os
import shutil
import tempfile
import zipfile

from scikit_build_core import build as skbuild

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = "spec_connector/libspec_connector.so"
# What a build with SC_TESTS=OFF reads.
SOURCES = ("CMakeLists.txt", "LICENSE", "NOTICES", "abi", "base", "cmake", "conformance",
           "docs/man", "examples", "gpu", "hashing", "kernels", "plugin", "store",
           "tools/CMakeLists.txt", "tools/ctl")
UNUSED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "broken", "build")

get_requires_for_build_sdist = skbuild.get_requires_for_build_sdist
get_requires_for_build_wheel = skbuild.get_requires_for_build_wheel


def source_root():
    """The folder of the C sources."""
    for folder in (os.path.join(HERE, "source"), os.path.dirname(HERE)):
        if os.path.isfile(os.path.join(folder, "plugin", "connector.c")):
            return folder
    raise RuntimeError("the C sources are absent, expected them in source/, as an sdist has them, "
                       "or in the folder above " + HERE)


def copy(root, name, folder):
    source, made = os.path.join(root, name), os.path.join(folder, name)
    os.makedirs(os.path.dirname(made), exist_ok=True)
    if os.path.isdir(source):
        shutil.copytree(source, made, ignore=UNUSED)
    else:
        shutil.copy2(source, made)


@contextlib.contextmanager
def staged(with_sources=False):
    """Enters a temporary folder that has what scikit-build-core packs."""
    root, before = source_root(), os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("pyproject.toml", "README.md", "spec_connector"):
            copy(HERE, name, folder)
        for name in ("LICENSE", "NOTICES"):
            copy(root, name, folder)
        if with_sources:
            copy(HERE, "backend.py", folder)
            for name in SOURCES:
                copy(root, name, os.path.join(folder, "source"))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def settings_with_source(config_settings):
    return {"cmake.source-dir": source_root(), **(config_settings or {})}


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    metadata_directory = os.path.abspath(metadata_directory)
    with staged():
        return skbuild.prepare_metadata_for_build_wheel(metadata_directory,
                                                        settings_with_source(config_settings))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    wheel_directory = os.path.abspath(wheel_directory)
    with staged():
        name = skbuild.build_wheel(wheel_directory, settings_with_source(config_settings),
                                   metadata_directory)
    path = os.path.join(wheel_directory, name)
    with zipfile.ZipFile(path) as wheel:
        has_library = LIBRARY in wheel.namelist()
    if not has_library:
        os.remove(path)
        raise RuntimeError(f"the wheel lacks {LIBRARY}")
    return name


def build_sdist(sdist_directory, config_settings=None):
    sdist_directory = os.path.abspath(sdist_directory)
    with staged(with_sources=True):
        return skbuild.build_sdist(sdist_directory, config_settings)
