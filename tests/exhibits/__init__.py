"""The rooms of the museum: wrong derivatives by theme, each next to its right twin."""
