"""`spade serve`: an OpenAI-compatible HTTP server over any policy."""
