"""Code that must be killable, in processes of its own: one protocol, one loop, one supervisor.

    supervisor.Pool ──► supervisor.Host ══ JSON lines ══► serve.serve(start)     in the process
                                                             start() ─► answer(request) ─► reply

A request has a budget of processor time, kept by the kernel; what a hosted library does, hangs in or breaks
on is one exception of `supervisor` for every way it can end. Hosted are the algebra of the math grader, the
scorers of Reasoning-Gym, BFCL's classes and checker, and the games of TextArena.
"""
