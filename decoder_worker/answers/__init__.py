"""From finished traces to one answer: extraction, equivalence, votes."""
