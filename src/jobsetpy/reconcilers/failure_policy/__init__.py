"""Failure policy: reactions to failed Jobs (KEP-262).

Terms: a *rule* maps failures of Jobs to an *action*; rules are in the order of their importance. A
*decision* is the action that was taken on a failure, or the end of the JobSet without one.
"""
