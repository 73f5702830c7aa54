"""Checks that `make lint` runs beside ruff, mypy and import-linter: layers, purity, sizes, words.

Each program reads files and writes one line per finding; none changes anything, and none knows how the product works.
"""
