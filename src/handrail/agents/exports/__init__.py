"""How tools and toolsets get their names.

- `entries`: what a registry holds: what an exported object is, and why it cannot be registered.
- `modules`: importing project modules, isolated per project, and what they export.
- `registry`: names to entries, in two namespaces; what an agent file names.
"""
