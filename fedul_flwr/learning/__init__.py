"""Local training, augmentation, losses, and device and precision of a process."""
