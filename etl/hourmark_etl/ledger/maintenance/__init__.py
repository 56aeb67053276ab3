"""Creation, backup, status and downgrade of the ledger's database."""
