"""The Kubernetes API as Muster sees it: objects off the wire, sessions, and the facts that follow from objects."""
