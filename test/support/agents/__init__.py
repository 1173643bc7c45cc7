"""Agents outside of pods, and trainings that they restart."""
