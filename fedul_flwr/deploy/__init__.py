"""What several data owners need to run Flower's deployment engine together."""
