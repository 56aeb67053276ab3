"""What operators ask and order: the commands `bucket`, `audit` and `ledger`, and what they tell."""
