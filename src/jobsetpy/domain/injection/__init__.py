"""What admission adds to pods that restart in place."""
