"""Assignment of seats to pods and whole Jobs with spares."""
