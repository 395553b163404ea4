"""From timings to a policy: what was measured, what a choice costs, which rules follow."""
