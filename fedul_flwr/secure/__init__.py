"""What clients compute together: similarities of points and sums of labels, behind one interface."""
