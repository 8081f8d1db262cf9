"""The local loop, augmentation and how a process computes."""
