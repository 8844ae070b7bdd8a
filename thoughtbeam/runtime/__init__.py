"""What several programs share: settings and arguments, logs, signals, tasks, gRPC servers and channels,
errors on the wire, the health command; the data set that scorers are trained on; checks of a search that
gateway and decoder worker both make; the life of vLLM, and what tells the weights of models apart."""
