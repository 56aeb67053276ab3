"""The project's checks, benchmarks and chaos tests: `hourmark test`, `bench` and `chaos`."""
