"""Recovery of the ledger: detects older copies, checks a ledger, rebuilds a lost one."""
