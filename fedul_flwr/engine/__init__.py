"""Programs that carry a run: Flower's SuperLink with Ray, or this process."""
