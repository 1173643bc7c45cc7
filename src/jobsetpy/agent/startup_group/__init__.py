"""Startup groups: the program that ends once all pods of its startup group have started."""
