"""Entry points of the pipeline. Import each from its own module; its dependencies are imported only then."""
