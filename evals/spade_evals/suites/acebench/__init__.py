"""ACEBench: agent tasks in a simulated phone and airline desk, and single answers with function calls."""
