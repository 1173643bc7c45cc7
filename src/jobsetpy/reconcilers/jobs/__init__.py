"""Child Jobs, Service and volume claims of a JobSet, and the order in which its rules are decided.

Terms: a *child Job* is one of a ReplicatedJob's Jobs; a *bucket* is the group of Jobs that are
active, successful, failed or of a former attempt; an *action* is what a failure policy asks for.
This room imports other features, because the template of a Job has a part of each of them.
"""
