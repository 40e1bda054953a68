"""The two extensions: the codec core and the engine's loop. Everything else about the build stands in pyproject.toml."""

import os
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

if sys.platform == "win32":
    sys.exit("wireproto does not build on Windows: its engine needs poll(2) and eventfd or a pipe; use Linux, macOS or WSL")

PARTS = "src/wireproto/_codec_parts"
SANITIZE = os.environ.get("WIREPROTO_SANITIZE", "").split()  # the sanitizers' flags, of tests/fuzz/build.py
# `make mutate` builds the engine often, by "-O1 -g0". Python's own flags ask for -g, which makes files six times as large, in a form of
# clang's that valgrind cannot read: "-O2 -g" brings it back for a debugger.
OPTIMISE = os.environ.get("WIREPROTO_OPTIMISE", "-O3 -g0").split()
FLAGS = [*OPTIMISE, "-fno-strict-aliasing", "-Wno-unused-function"]
LINK: list[str] = []
TRACE = bool(os.environ.get("WIREPROTO_LINETRACE"))  # `make coverage` asks which lines ran
MACROS: list[tuple[str, str | None]] = [("CYTHON_TRACE_NOGIL", "1"), ("CYTHON_USE_SYS_MONITORING", "0")] if TRACE else []
if SANITIZE:
    FLAGS = [*SANITIZE, "-Wno-unused-function"]
    LINK = [flag for flag in SANITIZE if flag.startswith("-fsanitize=")]

EXTENSIONS = [
    Extension(
        "wireproto._codec",
        ["src/wireproto/_codec.pyx", f"{PARTS}/crc.c", f"{PARTS}/lz4.c"],
        include_dirs=[PARTS],
        extra_compile_args=FLAGS,
        extra_link_args=LINK,
        define_macros=MACROS,
    ),
    Extension(
        "wireproto._net",
        ["src/wireproto/_net.pyx"],
        include_dirs=[PARTS],
        extra_compile_args=FLAGS,
        extra_link_args=LINK,
        define_macros=MACROS,
    ),
]

setup(
    options={"build_ext": {"parallel": len(EXTENSIONS)}},
    ext_modules=cythonize(
        EXTENSIONS,
        include_path=["src"],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "embedsignature": True,
            "freethreading_compatible": True,
            "linetrace": TRACE,
        },
    ),
)
