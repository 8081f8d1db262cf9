"""Label propagation across clients (XCLP): codes, graph, solver and labels, on arrays alone."""
