"""Engine: watches pods and nodes, asks the gang scheduler, writes gates and binds."""
