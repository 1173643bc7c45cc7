"""Restart in place (KEP-467): epochs, budgets, failures, the ledger of pods."""
