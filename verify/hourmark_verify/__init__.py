"""Tools that verify a Hourmark site: the judge, and the demo that ends with its verdict."""
