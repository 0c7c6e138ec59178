#!/usr/bin/env python3
"""Build hostcuda for the CUDA build of PyTorch of the interpreter that runs this.

build(folder) writes folder/libhostcuda.so, and links named like the libraries it stands in for. Every symbol that
PyTorch's CUDA libraries ask of CUDA and that the C files here do not define becomes a function that returns 0. Needs
cc, nm, and the CUDA headers that pip installs beside the CUDA build of PyTorch and inside triton.
"""

import importlib.util
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = ("clock.c", "memory.c", "runtime.c", "libraries.c")
LINKS = ("libcuda.so.1", "libcuda.so")

CUDA_NAME = re.compile(r"^(__cuda|cuda|cublas|cudnn|cusparse|cusolver|cufft|curand|cufile|nccl|cu[A-Z])")
# Libraries answer for their own version and error texts: PyTorch checks the first at start.
LEFT_TO_LIBRARIES = re.compile(r"GetVersion|GetErrorString|GetCudartVersion|GetProperty")
# PyTorch looks these up by name at run time, so no undefined symbol tells of them.
DRIVER = """
cuCtxFromGreenCtx cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuCtxSetCurrent cuDevResourceGenerateDesc
cuDevSmResourceSplitByCount cuDeviceGetDevResource cuDeviceGetName cuDeviceGetUuid_v2 cuFuncGetAttribute
cuFuncSetAttribute cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate cuLaunchKernel cuLaunchKernelEx
cuMemAddressFree cuMemAddressReserve cuMemCreate cuMemExportToShareableHandle cuMemGetAllocationPropertiesFromHandle
cuMemImportFromShareableHandle cuMemMap cuMemRelease cuMemRetainAllocationHandle cuMemSetAccess cuMemUnmap
cuModuleGetFunction cuModuleLoadData cuModuleLoadDataEx cuMulticastAddDevice cuMulticastBindMem cuMulticastCreate
cuMulticastGetGranularity cuMulticastUnbind cuOccupancyMaxActiveBlocksPerMultiprocessor cuPointerGetAttribute
cuPointerGetAttributes cuStreamWriteValue32 cuTensorMapEncodeTiled
""".split()  # noqa: SIM905


def package(name):
    """Return the folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"hostcuda: {name} is not installed here; it needs the CUDA build of PyTorch, with triton")
    return pathlib.Path(spec.origin).parent


def cuda_headers():
    """Return folders to include from: the headers of the CUDA that PyTorch was built for, then triton's.

    Triton's may be of an older CUDA, but have the parts that pip leaves out of the former (crt/).
    """
    beside_torch = sorted(package("torch").parent.glob("nvidia/cu*/include/cuda_runtime_api.h"))
    triton = package("triton") / "backends" / "nvidia" / "include"
    return [*(path.parent for path in beside_torch[-1:]), triton]


def build(folder):
    """Compile into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    headers = cuda_headers()
    objects = [_compile(source, folder, headers) for source in SOURCES]
    written = {line.split()[2] for o in objects for line in _run("nm", o).splitlines() if " T " in line}
    stubs = sorted(n for n in _wanted(package("torch") / "lib") - written if not LEFT_TO_LIBRARIES.search(n))
    (folder / "stubs.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in stubs))
    # The soname is the driver's, so that whoever opens libcuda.so.1 by name gets this one.
    flags = ("-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1")
    _run("cc", *flags, *objects, folder / "stubs.c", "-o", folder / "libhostcuda.so", "-lpthread", "-ldl")
    for name in LINKS:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to("libhostcuda.so")


def _compile(source, folder, headers):
    target = folder / f"{source}.o"
    include = [f"-isystem{path}" for path in headers]
    _run("cc", "-O1", "-fPIC", "-Wall", "-Wno-unused", *include, "-c", HERE / source, "-o", target)
    return target


def _wanted(libraries):
    """Names that PyTorch's libraries ask of CUDA."""
    wanted = set(DRIVER)
    for library in libraries.glob("lib*.so"):
        if "cuda" in library.name or library.name in ("libtorch_python.so", "libcaffe2_nvrtc.so"):
            symbols = _run("nm", "-D", "--undefined-only", library).splitlines()
            wanted.update(line.split()[-1].split("@")[0] for line in symbols)
    return {name for name in wanted if CUDA_NAME.match(name)}


def _run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"hostcuda: {' '.join(map(str, command[:2]))} failed:\n{done.stderr}")
    return done.stdout
