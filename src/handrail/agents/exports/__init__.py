"""How tools and toolsets get their names.

- `entries`: what a registry holds.
- `classify`: what an exported object is, why it cannot be registered, and what a module does not export.
- `discovery`: exports of project modules and of installed packages.
- `importing`: importing project modules, isolated per project.
- `registry`: names to entries, in two namespaces; what an agent file names.
"""
