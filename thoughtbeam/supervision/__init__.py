"""Running other programs as children so that none outlives its parent. No word of what they do."""
