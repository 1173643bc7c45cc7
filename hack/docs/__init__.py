"""Documentation: its site, and recordings for its pages."""
