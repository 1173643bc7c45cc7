"""Child Jobs, Service and volume claims of a JobSet, and the order in which its rules apply.

Terms: a *child Job* is one of a ReplicatedJob's Jobs; a *bucket* is the set of Jobs that are
active, successful, failed or left from an earlier attempt; an *action* is the response that a
failure policy requests. This package imports other features, because each of them contributes a
part of the Job template.
"""
