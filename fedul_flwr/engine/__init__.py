"""Ways to execute a run: Flower's SuperLink with Ray, or this process."""
