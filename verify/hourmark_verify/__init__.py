"""Tools that verify a Hourmark site: the judge, and the demo, which ends with the judge's result."""
