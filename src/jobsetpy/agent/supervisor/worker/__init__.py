"""Worker's processes: settings, rules, spawning and killing, the file of its epoch."""
