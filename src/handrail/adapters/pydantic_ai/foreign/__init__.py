"""Tools that are not Handrail's: `calls` has one such call and its declared effect, `values` its values as JSON."""
