"""Labels of namespaces, which namespace selectors of pod affinity match."""

from collections.abc import Mapping

from muster.gangs.selectors import NamespaceFacts


class Namespaces:
    """Facts by name, of namespaces that have labels. Methods return the names whose facts changed.

    Entries end with the namespace (I11).
    """

    def __init__(self) -> None:
        self.facts: dict[str, NamespaceFacts] = {}
        self._names: dict[str, str] = {}  # uid -> name
        self._uids: dict[str, str] = {}  # name -> uid of the newest

    def put(self, uid: str, name: str, labels: Mapping[str, str] | None) -> str | None:
        """Add or update a namespace."""
        self._names[uid] = name
        self._uids[name] = uid
        before = self.facts.get(name)
        if not labels:
            return name if self.facts.pop(name, None) is not None else None
        if before is not None and before.labels == labels:
            return None
        self.facts[name] = NamespaceFacts(name, dict(labels))
        return name

    def remove(self, uid: str) -> str | None:
        """Remove a namespace; another one may have its name by now."""
        name = self._names.pop(uid, None)
        if name is None or self._uids[name] != uid:
            return None
        del self._uids[name]
        return name if self.facts.pop(name, None) is not None else None
