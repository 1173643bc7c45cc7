"""Exclusive placement: one topology domain for each Job.

Terms: the *leader* is the pod with completion index 0, which the scheduler places; *followers* are
the other pods of its Job, which are sent to the leader's domain.
"""
