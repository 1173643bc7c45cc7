"""Configuration: the table of settings, flags, the configuration file."""
