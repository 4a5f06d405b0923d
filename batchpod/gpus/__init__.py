"""The gpu actors over all their incarnations: starts, hangs, deaths, who is blamed and who takes over."""
