"""No environment class."""

x = 1
