"""The commands `hourmark bucket …`, which list, explain, wait for and verify buckets."""
