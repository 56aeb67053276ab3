"""Remote topics and the plan that creates and updates them."""
