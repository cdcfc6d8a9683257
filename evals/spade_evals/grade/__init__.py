"""Graders, one module per kind of answer; what they share lies beside them.

math        numbers and formulas; latex, structure: what an answer says, from its text alone;
            algebra: the child process around math-verify; pool: child processes that can be killed
choice      one letter out of several
code        programs against tests, in the sandbox
reasoning   Reasoning-Gym's own scorers
"""
