"""Reports of agents: formats of epochs, seats, causes and progress in annotations."""
