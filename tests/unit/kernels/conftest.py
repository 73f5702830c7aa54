"""Kernels under Triton's interpreter, on the CPU: the variable must be set before Triton is first imported."""

import os

import pytest

os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")
