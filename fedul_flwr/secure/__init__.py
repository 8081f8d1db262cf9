"""What clients compute together behind one interface: similarities of points, sums of labels."""
