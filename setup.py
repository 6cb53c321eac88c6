"""Builds the C kernels into two plain shared libraries; everything else stands in pyproject.toml."""

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = {
    "sources": [f"src/apical/kernels/{name}.c" for name in ("ada", "conv", "winograd")],
    "depends": [f"src/apical/kernels/{name}.h" for name in ("template", "norm", "neurons", "conv", "winograd")],
}
# Without trapping maths and errno the compiler may turn every branch of the kernels into a vector select.
FLAGS = ["-O3", "-std=c11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fvisibility=hidden"]

# `optional`: without a compiler the installation succeeds and apical serves its composite path.
KERNELS = [
    # -fopenmp is left out at link time: GOMP_* stay unresolved and bind to the runtime that torch has loaded.
    Extension("apical.kernels.ada_openmp", **SOURCES, extra_compile_args=[*FLAGS, "-fopenmp"], optional=True),
    Extension("apical.kernels.ada_serial", **SOURCES, extra_compile_args=[*FLAGS, "-fopenmp-simd"], optional=True),
]


class BuildSharedLibrary(build_ext):
    """Shared libraries for ctypes: no Python ABI in the name, no init symbol."""

    def get_ext_filename(self, fullname):
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext):
        return []


class AnyPythonWheel(bdist_wheel):
    """The libraries fit every Python 3 of the platform."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(ext_modules=KERNELS, cmdclass={"build_ext": BuildSharedLibrary, "bdist_wheel": AnyPythonWheel})
