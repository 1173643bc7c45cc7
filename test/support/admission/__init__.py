"""Admission: forms of JobSets, and clients that write them."""
