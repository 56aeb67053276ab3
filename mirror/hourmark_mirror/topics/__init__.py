"""The remote topics and the plan that creates them."""
