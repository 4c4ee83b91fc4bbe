"""The parts of the benchmarks: processes, loads, measurements, tables and plots."""
