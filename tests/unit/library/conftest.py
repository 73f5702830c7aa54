"""Kernels run under Triton's interpreter here: the variable must be set before Triton is first imported."""

import os

import pytest

os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("torch", reason="the library needs torch")
