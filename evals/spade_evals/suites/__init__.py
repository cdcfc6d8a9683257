"""The evaluation suites, one module each; names are rows of `spade.registry`."""
