"""From operations to binaries: linalg sources, iree-compile, artefacts, machine code."""
