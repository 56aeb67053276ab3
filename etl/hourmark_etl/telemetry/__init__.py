"""What a driver says of itself: metrics, a line of progress, and how things stand."""
