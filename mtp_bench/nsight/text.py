"""Strings of a capture, made safe to show and easy to compare: they come from programs that nobody here wrote."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Controls (escape sequences), formats (direction overrides, zero width), surrogates, private use, unassigned, line and
# paragraph separators.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# CUDA runtime calls carry the version of CUDA that brought them: cudaStreamSynchronize_v3020. Driver calls are told
# apart by their _v2, which stays.
_API_VERSION = re.compile(r"_v\d{4,}")
_API_VARIANT = re.compile(r"(_v\d+)?(_pt[sd][sz])?$")
# What torch.autograd.profiler.emit_nvtx appends to the name of an operator, a number a call.
_OP_DETAILS = (b", seq = ", b", op_id = ", b", sizes = ", b", input_op_ids = ")
_OPERATOR = re.compile(r"[a-z]\w*::\w[\w.]*")


@lru_cache(maxsize=65536)
def printable(text: str) -> str:
    """``text`` with everything that a terminal or a browser would act on as an escape: ``\\x1b``, ``\\u202e``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNPRINTABLE else char for char in text
    )


def api_name(text: str) -> str:
    """``cudaStreamSynchronize`` for ``cudaStreamSynchronize_v3020``."""
    return printable(_API_VERSION.sub("", text))


def api_base(name: str) -> str:
    """The call whatever its variant: ``cuMemcpyDtoH`` for ``cuMemcpyDtoH_v2_ptds``."""
    return _API_VARIANT.sub("", name)


def operator_name(text: bytes) -> bytes:
    """The name of a range without what PyTorch says of the call: ``aten::to`` of ``aten::to, seq = 3, op_id = 7``."""
    at = text.find(b", ")
    while at >= 0:
        if text.startswith(_OP_DETAILS, at):
            return text[:at]
        at = text.find(b", ", at + 1)
    return text


def decoded(text: bytes) -> str:
    """Text of a database, whatever it holds."""
    return text.decode("utf-8", "replace")


def is_operator(text: str) -> bool:
    """Whether a range's name is that of a PyTorch operator, ``aten::copy_`` say."""
    return _OPERATOR.fullmatch(text) is not None
