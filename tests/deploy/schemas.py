"""Kubernetes' own schemas, strict: a field that a version does not know is a fault."""

import functools
import json

import kubernetes_validate
import kubernetes_validate.utils

from sources import Fault

VERSIONS = ["1.33", "1.34", "1.35", "1.36", "1.37"]
# Of custom resources, of which Kubernetes has no schema.
FOREIGN = {
    "cert-manager.io/v1 Certificate",
    "cert-manager.io/v1 Issuer",
    "monitoring.coreos.com/v1 PodMonitor",
    "monitoring.coreos.com/v1 ServiceMonitor",
}

# The package reads a file of some megabytes for each object.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


# Fewer different objects than these would mean that most were never handed over.
LEAST = 100


class Checker:
    """Checks each different object once for each version."""

    def __init__(self):
        self.seen = set()
        self.foreign = set()

    def check(self, objects):
        """Checks all objects against all versions."""
        faults = []
        for name, item in objects.items():
            kind = f"{item['apiVersion']} {item['kind']}"
            if kind in FOREIGN:
                self.foreign.add(kind)
                continue
            text = json.dumps(item, sort_keys=True)
            if text not in self.seen:
                self.seen.add(text)
                faults += [f"{name}: {fault}" for version in VERSIONS for fault in faults_of(item, version)]
        if faults:
            raise Fault("\n".join(faults))

    def checks(self, _program, _checker):
        """What was checked of all that the other checks rendered; the last group."""
        yield f"schemas: there are those of {', '.join(VERSIONS)}", require_versions
        yield "schemas: a field that is not there is found", finds_faults
        yield f"schemas: {len(self.seen)} different objects in each version", self.enough
        yield f"schemas: not checked, since Kubernetes has none: {', '.join(sorted(self.foreign))}", self.all_foreign

    def enough(self):
        if len(self.seen) < LEAST:
            raise Fault(f"expected at least {LEAST}")

    def all_foreign(self):
        if self.foreign != FOREIGN:
            raise Fault(f"never rendered: {sorted(FOREIGN - self.foreign)}")


def require_versions():
    """The package takes the next older schema where it has none, which would check nothing new."""
    known = {kubernetes_validate.utils.major_minor(version) for version in kubernetes_validate.utils.all_versions()}
    if missing := [version for version in VERSIONS if version not in known]:
        raise Fault(f"kubernetes-validate has none of {', '.join(missing)}; it has {', '.join(sorted(known))}")


def finds_faults():
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"port": 1}}
    if missed := [version for version in VERSIONS if not list(faults_of(wrong, version))]:
        raise Fault(f"nothing is found by the schemas of {', '.join(missed)}")


def faults_of(item, version):
    """What is wrong with an object."""
    try:
        kubernetes_validate.validate(item, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{'.'.join(str(step) for step in error.path)}: {error.message} (Kubernetes {version})"
    except kubernetes_validate.SchemaNotFoundError as error:
        yield error.message
