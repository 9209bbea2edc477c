"""What the broker tells over HTTP: metrics, health, readiness."""
