"""Both clusters, the topics that the mirror carries, and MirrorMaker 2's properties."""
