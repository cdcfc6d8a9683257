"""tau2-bench: retail, airline and telecom desks with a simulated user, run by the benchmark's own package."""
