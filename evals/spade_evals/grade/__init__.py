"""Graders, one module per kind of answer; what they share lies beside them.

math        numbers and formulas; latex, structure: what an answer says, from its text alone;
            algebra: the hosted process around math-verify (`spade_evals.hosting`)
choice      one letter out of several
code        programs against tests, in the sandbox
reasoning   Reasoning-Gym's own scorers
"""
