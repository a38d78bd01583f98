"""Reads metrics with the parsers of Prometheus' Python client: openmetrics.py URL"""

import sys
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as older


def samples(url, accept, parse, content_type):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith(content_type), answer.headers
        families = list(parse(answer.read().decode("utf-8")))
    found = {}
    for family in families:
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return families, found


url = sys.argv[1]
families, new = samples(url, "application/openmetrics-text;version=1.0.0", openmetrics, "application/openmetrics-text")
_, old = samples(url, "text/plain;version=0.0.4", older, "text/plain")

assert set(new) == set(old), set(new) ^ set(old)
units = {family.name: family.unit for family in families if family.unit}
assert units["pumice_tx_bytes"] == "bytes" and units["pumice_cq_fill_ratio"] == "ratio", units
state = {labels: value for (name, labels), value in new.items() if name == "pumice_queue_pairs"}
assert sum(state.values()) >= 1, "no queue pair"
tags = {dict(labels).get("tag") for _, labels in new}
assert 'a "tag" \\ of one' in tags, tags
assert any(name == "pumice_qp_info" for name, _ in new), "no series of a queue pair"
print(f"{len(families)} families, {len(new)} series: both parsers read the same")
