"""The Designer: briefs and prompts, corpus documents, parsing of what was written, hints."""
