"""Requests that kube-apiserver has answered, by its own count."""

import re
from collections import Counter
from typing import Final

from muster.kube.session import KubeSession

_REQUESTS: Final = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>[0-9.e+]+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_CALL_SECONDS: Final = 60.0


async def requests(session: KubeSession) -> Counter[str]:
    """Number of requests so far by "VERB RESOURCE" or "VERB RESOURCE/SUBRESOURCE", without leases, which are renewed
    all the time.
    """
    answer = await session.request("GET", "/metrics", timeout_seconds=_CALL_SECONDS)
    counted: Counter[str] = Counter()
    for found in _REQUESTS.finditer(answer.body.decode()):
        labels = dict(_LABEL.findall(found["labels"]))
        resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
        if labels["resource"] and labels["resource"] != "leases":
            counted[f"{labels['verb']} {resource}"] += int(float(found["value"]))
    return counted
