"""Programs of other projects: Kueue and Trainer."""
