"""The command line. `spade.cli.main` knows the verbs; each verb's module is imported when it is used."""
