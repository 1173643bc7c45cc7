"""Documentation: its site, and recordings of the plugin."""
