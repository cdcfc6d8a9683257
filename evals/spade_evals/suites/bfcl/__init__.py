"""BFCL v4: function calling in conversations of several turns, and in single answers.

package   the pinned `bfcl-eval` wheel or a checkout: where it is, which bytes are meant, reading its data
host      the process that runs upstream's classes and checker; backend asks it
prompts   the words around a question, as upstream's
multi_turn, single_turn   the tasks;  ast_check  the checker of single answers
suite     `bfcl` and `bfcl-single`
"""
