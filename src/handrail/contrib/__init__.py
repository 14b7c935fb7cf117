"""Parts that come with Handrail and that nothing in it depends on: suites of tools."""
