"""Startup groups: the program that ends once all pods of its group have started."""
