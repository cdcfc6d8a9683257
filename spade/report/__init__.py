"""What a person looks at while and after a run: progress, curves, the Markdown report."""
