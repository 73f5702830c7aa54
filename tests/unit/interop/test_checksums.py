"""XXH3-128 and BLAKE3 against values of the reference packages, at every length where the algorithm takes another way.

The values were made with xxhash 4.0.1 and blake3 1.0.9 over `bytes(i % 251 for i in range(n))` by

    python -c "import xxhash, blake3; ..."   # xxhash.xxh3_128(data).hexdigest(), blake3.blake3(data).hexdigest()
"""
