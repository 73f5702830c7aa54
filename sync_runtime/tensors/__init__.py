"""The nouns of weights: wire dtypes, layouts with their blocks, raw bits of tensors, sparse differences.

Needs numpy alone. Knows neither how differences are found (delta) nor how they are written (codec): both stand on this.
"""
