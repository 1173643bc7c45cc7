"""Agents outside of pods and as processes, and trainings that they restart."""
