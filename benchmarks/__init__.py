"""Measurements: `make bench`, or `python -m benchmarks --only drain --quick`. What they show: docs/performance.md."""
