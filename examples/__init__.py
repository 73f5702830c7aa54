"""Examples that run from the checkout: `python -m examples.grpo.local`."""
