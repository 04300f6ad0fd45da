"""Benchmarks: `python -m benchmarks --list`. Each is one module with ``run(options)``; see `frame`."""
