"""Setup of Flower's deployment engine for several data owners."""
