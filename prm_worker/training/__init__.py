"""The training life of scorers of hidden states: trained, calibrated and judged on collected traces."""
