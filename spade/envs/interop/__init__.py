"""Pools for other frameworks: a folder that their tools load, with the programs and a thin adapter in it.

    gymnasium     a package that registers one id a program
    gem           the same for GEM (`gem.make`)
    verifiers     a taskset and its environment for verifiers v1 (`vf-eval`, prime-rl)
    openenv       one image for the pool: server, client, Dockerfile, manifest

In all of them the programs run in SPADE's sandbox, so the package `spade-rl` is a dependency; its trainer is
not used. The adapters are the templates beside this file; `import_programs` reads all four back.
"""

from spade.envs.interop.export import FRAMEWORKS as FRAMEWORKS
from spade.envs.interop.export import export_framework as export_framework
