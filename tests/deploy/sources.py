"""The three ways to the manifests of an installation: the program itself, kustomize, the Helm chart.

Each returns objects as they would reach the API server, by what names them there.
"""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import helm_python
import yaml
from helm_python import _native

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "gpufence"
KUBECTL = pathlib.Path(sys.executable).parent / "kubectl"
# What is rendered must not depend on who runs it.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}


class Refused(Exception):
    """A tool refused its input; the message is the tool's own."""


class Fault(Exception):
    """A check found something wrong; the message says what."""


def command(*words, environment=None):
    """The standard output of a command, or Refused with its standard error."""
    done = subprocess.run(
        [str(word) for word in words], env=ENVIRONMENT | (environment or {}), capture_output=True, text=True, timeout=120
    )
    if done.returncode != 0:
        raise Refused(done.stderr.strip())
    return done.stdout


class Program:
    """The built gpufence."""

    def __init__(self, path):
        self.path = pathlib.Path(path).resolve(strict=True)

    def run(self, *words, contract=None, environment=None):
        """What a command prints, with a contract given as an object or as text, or the built-in one."""
        if contract is None:
            return command(self.path, *words, environment=environment)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(contract if isinstance(contract, str) else json.dumps(contract))
            file.flush()
            return command(self.path, "--config", file.name, *words, environment=environment)

    def text(self, *options, contract=None):
        """What `gpufence manifests` prints."""
        return self.run("manifests", *options, contract=contract)

    def manifests(self, *options, contract=None):
        """The objects of `gpufence manifests`."""
        return objects(self.text(*options, contract=contract))

    def contract(self, contract=None, environment=None):
        """The whole contract that comes into force with one, and with these variables."""
        return contract_of(self.run("config", contract=contract, environment=environment))


def kustomize(folder):
    """The objects of `kubectl kustomize`."""
    return objects(command(KUBECTL, "kustomize", folder))


@functools.cache
def chart():
    """The loaded chart."""
    return helm_python.Chart.load(CHART)


def helm(values=None, namespace="gpufence", name="gpufence", kubernetes=None):
    """The objects of `helm template`, and the notes, as an installation of that release renders them."""
    options = {"name": name, "namespace": namespace, "is_install": True}
    if kubernetes:
        options["kube_version"] = kubernetes
    # The wrapper's own render has no kube_version, which the library's has.
    try:
        rendered = _native.call_string("helm_render", chart()._raw(), json.dumps(values or {}), json.dumps(options))
    except helm_python.HelmError as error:
        raise Refused(str(error)) from error
    files = json.loads(rendered)
    notes = "".join(text for file, text in files.items() if file.endswith("NOTES.txt"))
    manifests = [text for file, text in sorted(files.items()) if file.endswith(".yaml")]
    return objects("\n---\n".join(manifests)), notes


class Loader(yaml.CSafeLoader):
    """YAML in which a key may be written once."""


def mapping(loader, node):
    """A map, or a Fault where a key stands in it twice."""
    loader.flatten_mapping(node)
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        raise Fault(f"the keys {sorted(twice)} are written twice{node.start_mark}")
    return loader.construct_mapping(node, deep=True)


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


class ContractLoader(Loader):
    """YAML 1.2, which contracts are read as: `off` and `no` are words, and so is a date."""


ContractLoader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")]
    for first, pairs in Loader.yaml_implicit_resolvers.items()
}
ContractLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))


def contract_of(text):
    """A contract as an object."""
    return yaml.load(text, Loader=ContractLoader)


def read_contract(path):
    """The contract in a file."""
    return contract_of(path.read_text())


def objects(text):
    """All documents of a stream by what names an object in a cluster."""
    found = {}
    for item in yaml.load_all(text, Loader=Loader):
        if item is None:
            continue
        metadata = item["metadata"]
        name = f"{item['kind']} {metadata.get('namespace', '')}/{metadata['name']}".replace(" /", " ")
        if name in found:
            raise Fault(f"{name} is rendered twice")
        found[name] = item
    return found
