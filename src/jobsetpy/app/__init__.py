"""The programs: command line and wiring."""
