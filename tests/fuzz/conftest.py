from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def hostile():
    """The module that creates hostile traces and checks what is made of them."""
    path = Path(__file__).with_name("hostile_traces.py")
    spec = importlib.util.spec_from_file_location("hostile_traces", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
