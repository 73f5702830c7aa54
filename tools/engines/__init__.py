"""Environments of engines: pinned with hashes, cached outside the checkout, for the tests of plug-ins.

Engines pin their own torch, so they cannot live in `.venv`. An engine is here when `requirements/engine-NAME.txt` is.
"""
