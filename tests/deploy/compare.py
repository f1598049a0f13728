"""Whether two ways lead to the same objects, and where they part if not."""

import copy

from sources import Fault

# What Helm itself writes on the objects of a release, or demands of a chart.
HELM_LABELS = ["app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"]
# How many differences are named.
MOST = 20


def same(expected, found, source, program):
    """Raises a Fault that names every difference of two sets of objects."""
    faults = [f"{name}: not rendered by {source}" for name in sorted(expected.keys() - found.keys())]
    faults += [f"{name}: rendered by {source} alone" for name in sorted(found.keys() - expected.keys())]
    for name in sorted(expected.keys() & found.keys()):
        differences = differing(with_contract(expected[name], program), with_contract(found[name], program), "")
        faults += [f"{name}: {difference}" for difference in differences]
    if faults:
        more = [f"and {len(faults) - MOST} more"] if len(faults) > MOST else []
        raise Fault("\n".join(faults[:MOST] + more))


def differing(expected, found, path):
    """Each place where two values differ."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            place = f"{path}.{key}" if path else str(key)
            if key not in found:
                yield f"{place} is missing; expected {expected[key]!r}"
            elif key not in expected:
                yield f"{place} is {found[key]!r}; expected not to be there"
            else:
                yield from differing(expected[key], found[key], place)
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, pair in enumerate(zip(expected, found)):
            yield from differing(*pair, f"{path}[{index}]")
    elif expected != found or type(expected) is not type(found):
        yield f"{path} is {found!r}; expected {expected!r}"


def with_contract(item, program):
    """The object with the contract that comes into force with it: how one is written is each way's own."""
    text = item.get("data", {}).get("contract.yaml") if item["kind"] == "ConfigMap" else None
    if text is None:
        return item
    return {**item, "data": {**item["data"], "contract.yaml": program.contract(text)}}


def without_helm(objects, namespace):
    """The objects without what only one of program and Helm writes."""
    stripped = {}
    for name, item in objects.items():
        # A chart cannot render the namespace of its own release, which Helm makes (--create-namespace).
        if name == f"Namespace {namespace}":
            continue
        stripped[name] = copy.deepcopy(item)
        # Those of the object alone: on pods, labels of a release would restart them with each new version of a chart.
        for label in HELM_LABELS:
            stripped[name]["metadata"]["labels"].pop(label, None)
    return stripped
