"""Tasks of EleutherAI's lm-evaluation-harness on the project's own serving (extra `lm-eval`).

    lm-eval:TASK ─► run ─► the harness' evaluator ─asks─► ServedLM ─► a policy
                                  └─► its samples ─► rows ─► <task>.jsonl, run.json, index.html

Prompts, filters and metrics are the harness'; engine, resume, intervals, comparison and the page are ours.
`run` and `rows` can be imported without the harness, `model` cannot.
"""
