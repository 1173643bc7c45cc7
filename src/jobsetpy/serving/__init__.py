"""What the servers of webhooks and of the coscheduler share: certificates and guarded connections.

Nothing here listens; each server brings its own requests and its own rules on whom it answers.
"""
