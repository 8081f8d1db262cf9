"""Label propagation across clients (XCLP): codes, graph, solver and labels, on plain arrays."""
