"""What the Helm library makes of the chart, against `gpufence manifests` with the options that mean the same."""

import copy
import functools
import tempfile

import helm_python

from compare import same, without_helm
from overlays import CONTRACTS
from schemas import VERSIONS
from sources import CHART, DEPLOY, Fault, Refused, chart, helm, read_contract

PEM = """-----BEGIN CERTIFICATE-----
MAA=
-----END CERTIFICATE-----
"""
# Values, and the options that mean the same. CA stands for a file with PEM.
WAYS = {
    "as it is": ({}, []),
    "audit only": ({"auditOnly": True}, ["--audit-only"]),
    "a namespace that YAML takes for a number": ({}, ["--namespace", "1e3"]),
    "files": ({"tls": {"source": "files"}}, ["--tls", "files"]),
    "files with a CA": ({"tls": {"source": "files", "ca": PEM}}, ["--tls", "files", "--ca-file", "CA"]),
    "cert-manager": ({"tls": {"source": "certManager"}}, ["--tls", "cert-manager"]),
    "network policies and a PodMonitor": (
        {"networkPolicy": {"enabled": True}, "monitor": "pod"},
        ["--network-policy", "--monitor", "pod"],
    ),
    "network policies and a ServiceMonitor, from files": (
        {"networkPolicy": {"enabled": True}, "monitor": "service", "tls": {"source": "files"}},
        ["--network-policy", "--monitor", "service", "--tls", "files"],
    ),
    "image, replicas and priority": (
        {"image": {"repository": "example.com/a/gpufence", "tag": "1.2"}, "replicas": 5, "priorityClassName": "on"},
        ["--image", "example.com/a/gpufence:1.2", "--replicas", "5", "--priority-class", "on"],
    ),
    "image by digest, one replica": (
        {"image": {"repository": "example.com/gpufence", "digest": f"sha256:{'a' * 64}"}, "replicas": 1},
        ["--image", f"example.com/gpufence@sha256:{'a' * 64}", "--replicas", "1"],
    ),
    "a CronJob that audits": (
        {"audit": {"cronJob": {"enabled": True, "schedule": "*/30 6-18 * * MON-FRI"}}, "networkPolicy": {"enabled": True}},
        ["--audit-cron-job", "*/30 6-18 * * MON-FRI", "--network-policy"],
    ),
    "replicas that audit": ({"contract": {"audit": {"interval": "15m", "reports": "none"}}}, []),
    "replicas that audit and keep reports, from files": (
        {
            "contract": {"audit": {"interval": "6h", "reports": "openreports"}},
            "tls": {"source": "files"},
            "networkPolicy": {"enabled": True},
        },
        ["--tls", "files", "--network-policy"],
    ),
    "both ways to audit, with reports": (
        {
            "contract": {"audit": {"interval": "1m", "reports": "policyreports"}},
            "audit": {"cronJob": {"enabled": True, "schedule": "@daily"}},
        },
        ["--audit-cron-job", "@daily"],
    ),
    "failure policies Ignore": (
        {"failurePolicy": {"validating": "Ignore", "mutating": "Ignore"}},
        ["--validating-failure-policy", "Ignore", "--mutating-failure-policy", "Ignore"],
    ),
}
ENFORCED = {
    "mode enforce, failure policies Fail": (
        {"contract": {"mode": "enforce"}, "failurePolicy": {"validating": "Fail", "mutating": "Fail"}},
        ["--validating-failure-policy", "Fail", "--mutating-failure-policy", "Fail"],
    ),
    "mode enforce, audit only": ({"contract": {"mode": "enforce"}, "auditOnly": True}, ["--audit-only"]),
    "mode enforce": ({"contract": {"mode": "enforce"}}, []),
}
# Values, the namespace, and what a refusal must say.
REFUSED = {
    "an unknown value": ({"replica": 3}, "gpufence", "additional properties 'replica' not allowed"),
    "an unknown key of the contract": (
        {"contract": {"pool": []}}, "gpufence", "additional properties 'pool' not allowed",
    ),
    "an unknown rule": ({"contract": {"rules": {"broad": "deny"}}}, "gpufence", "'/contract/rules'"),
    "an unknown mode": (
        {"contract": {"mode": "deny"}}, "gpufence", "'/contract/mode': value must be one of 'audit', 'warn', 'enforce'",
    ),
    "a source of the contract": ({"contract": {"tls": {"source": "files"}}}, "gpufence", "'/contract/tls'"),
    "no pools": ({"contract": {"pools": []}}, "gpufence", "'/contract/pools': minItems: got 0, want 1"),
    "a pool without taints": (
        {"contract": {"pools": [{"name": "a", "resources": ["a.com/b"], "nodeSelector": {"a": "b"}}]}},
        "gpufence",
        "missing property 'taints'",
    ),
    "a taint that cannot keep anyone out": (
        {"contract": {"pools": [{
            "name": "a", "resources": ["a.com/b"], "nodeSelector": {"a": "b"},
            "taints": [{"key": "a", "effect": "PreferNoSchedule"}],
        }]}},
        "gpufence",
        "'/contract/pools/0/taints/0/effect': value must be one of 'NoSchedule', 'NoExecute'",
    ),
    "a resource without a vendor": (
        {"contract": {"pools": [{
            "name": "a", "resources": ["gpu"], "nodeSelector": {"a": "b"},
            "taints": [{"key": "a", "effect": "NoExecute"}],
        }]}},
        "gpufence",
        "'/contract/pools/0/resources/0'",
    ),
    "markers that mark nothing": (
        {"contract": {"pools": [{
            "name": "a", "resources": ["a.com/b"], "nodeSelector": {"a": "b"},
            "taints": [{"key": "a", "effect": "NoExecute"}], "markers": {},
        }]}},
        "gpufence",
        "'/contract/pools/0/markers': minProperties: got 0, want 1",
    ),
    "an unknown way to select a pool": (
        {"contract": {"selection": {"field": "a"}}}, "gpufence", "additional properties 'field' not allowed",
    ),
    "a custom resource without paths": (
        {"contract": {"customResources": [{"group": "a.com", "kind": "A", "resource": "as"}]}},
        "gpufence",
        "missing property 'templates'",
    ),
    "an unknown key of a pod spec": (
        {"contract": {"customResources": [
            {"group": "a.com", "kind": "A", "resource": "as", "podSpecs": [{"path": "$.spec", "pods": []}]},
        ]}},
        "gpufence",
        "additional properties 'pods' not allowed",
    ),
    "a service account without its namespace": (
        {"contract": {"levers": {"serviceAccounts": ["karpenter"]}}}, "gpufence", "'/contract/levers/serviceAccounts/0'",
    ),
    "an unknown action for unknown nodes": (
        {"contract": {"nodes": {"whenUnknown": "refuse"}}}, "gpufence", "'/contract/nodes/whenUnknown'",
    ),
    "an audit that is no time": (
        {"contract": {"audit": {"interval": "often"}}}, "gpufence", "'/contract/audit/interval'",
    ),
    "unknown reports": (
        {"contract": {"audit": {"reports": "kyverno"}}}, "gpufence",
        "'/contract/audit/reports': value must be one of 'none', 'openreports', 'policyreports'",
    ),
    "a schedule of four fields": (
        {"audit": {"cronJob": {"enabled": True, "schedule": "0 6 * *"}}}, "gpufence", "'/audit/cronJob/schedule'",
    ),
    "a number for a string": ({"contract": {"contact": 5}}, "gpufence", "'/contract/contact': got number, want string"),
    "no replicas": ({"replicas": 0}, "gpufence", "'/replicas': minimum: got 0, want 1"),
    "an unknown source": ({"tls": {"source": "cert-manager"}}, "gpufence", "'/tls/source'"),
    "a private key for a CA": (
        {"tls": {"source": "files", "ca": PEM + "-----BEGIN PRIVATE KEY-----\n"}}, "gpufence", "'/tls/ca'",
    ),
    "a CA with managed": ({"tls": {"ca": PEM}}, "gpufence", "tls.ca is only for tls.source files"),
    "an unknown monitor": ({"monitor": "prometheus"}, "gpufence", "'/monitor'"),
    "Fail in mode audit": (
        {"failurePolicy": {"validating": "Fail"}}, "gpufence",
        "failurePolicy.validating Fail cannot be had with contract.mode audit",
    ),
    "Fail in mode warn": (
        {"failurePolicy": {"mutating": "Fail"}, "contract": {"mode": "warn"}}, "gpufence",
        "failurePolicy.mutating Fail cannot be had with contract.mode warn",
    ),
    "Fail with auditOnly": (
        {"failurePolicy": {"validating": "Fail"}, "contract": {"mode": "enforce"}, "auditOnly": True}, "gpufence",
        "failurePolicy.validating Fail cannot be had with auditOnly",
    ),
    "the namespace default": ({}, "default", 'the namespace "default" cannot hold an installation'),
    "a namespace of the cluster": ({}, "kube-system", 'the namespace "kube-system" cannot hold an installation'),
    "a namespace too long for the probe's": ({}, "n" * 58, "of at most 57 characters"),
    "a listener inside the pod": (
        {"contract": {"server": {"listen": "127.0.0.1:8443"}}}, "gpufence", "contract.server.listen is 127.0.0.1:8443",
    ),
    "one port for both": (
        {"contract": {"server": {"listen": "0.0.0.0:9090"}}}, "gpufence", "the port of contract.server.listen",
    ),
}


def checks(program, checker):
    """Lint, equality for every way and contract, refusals, notes."""
    yield "helm: the values hold the built-in contract", lambda: default_contract(program)
    for version in VERSIONS:
        yield f"helm lint --strict, Kubernetes {version}", lambda version=version: lint(version)
    contracts = {"built-in": None} | {file.stem: read_contract(file) for file in CONTRACTS}
    for name, contract in contracts.items():
        for way, (values, options) in (WAYS | (ENFORCED if contract is None else {})).items():
            check = functools.partial(equal, program, checker, contract, values, options)
            yield f"helm, contract {name}: {way}", check
    yield "helm: the ready-made custom resources", lambda: ready_made(program, checker)
    for name, case in REFUSED.items():
        yield f"helm refuses {name}", functools.partial(refused, *case)
    yield "helm: a bare off, which its YAML reads as false", lambda: bare_off(program)
    yield "helm refuses a Kubernetes without match conditions", too_old
    yield "helm: every value reaches an object", reach
    yield "helm: the notes name the next commands", notes


def default_contract(program):
    """Values are laid over the built-in contract only as long as the chart's own are that."""
    own = copy.deepcopy(chart().values["contract"])
    own["tls"]["source"] = "managed"
    found = program.contract(own)
    expected = program.contract({"tls": {"source": "managed"}, "server": {"drain": "12s"}})
    if found != expected:
        raise Fault(f"found {found}; expected {expected}")


def lint(version):
    report = helm_python.lint(CHART, strict=True, namespace="gpufence", kube_version=f"v{version}.0")
    # Of these there is one by design: no icon.
    findings = [message for message in report["messages"] if "icon is recommended" not in str(message)]
    if findings or report["errors"] or report["total_charts_linted"] != 1:
        raise Fault(f"{findings} {report['errors']}")


def equal(program, checker, contract, values, options):
    """That the chart with these values is what the program renders with these options."""
    values = copy.deepcopy(values)
    contract = {**(contract or {}), **values.get("contract", {})}
    namespace = options[options.index("--namespace") + 1] if "--namespace" in options else "gpufence"
    expected = with_ca(options, lambda options: program.manifests(*options, contract=contract or None))
    found, _ = helm({**values, "contract": contract}, namespace, name="release", kubernetes="v1.37.0")
    checker.check(found)
    checker.check(expected)
    same(without_helm(expected, namespace), without_helm(found, namespace), "the chart", program)


def ready_made(program, checker):
    """That the list of deploy/ can be taken over as it is, and that the server is asked about all of it."""
    contract = {**read_contract(DEPLOY / "custom-resources.yaml"), "mode": "enforce"}
    equal(program, checker, contract, {}, [])
    hooks = helm({"contract": contract})[0]["ValidatingWebhookConfiguration gpufence"]["webhooks"]
    rules = next(hook["rules"] for hook in hooks if hook["name"] == "customresources.validate.gpufence.io")
    found = sorted((rule["apiGroups"][0], resource) for rule in rules for resource in rule["resources"])
    expected = sorted((custom["group"], custom["resource"]) for custom in contract["customResources"])
    if found != expected or len(found) < 20:
        raise Fault(f"the rules are for {found}; expected {expected}")


def with_ca(options, use):
    if "CA" not in options:
        return use(options)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(PEM)
        file.flush()
        return use([file.name if option == "CA" else option for option in options])


def refused(values, namespace, message):
    try:
        helm(values, namespace)
    except Refused as refusal:
        if message not in str(refusal):
            raise Fault(f"the message is {refusal}\nexpected in it: {message}") from refusal
        return
    raise Fault("it was rendered")


def bare_off(program):
    text = "contract: {templates: off, rules: {broad-toleration: off, node-name-bypass: off}, nodes: {whenUnknown: off}}"
    values = helm_python.values_from_yaml(text)
    rules = {"broad-toleration": "off", "node-name-bypass": "off"}
    contract = {"templates": "off", "rules": rules, "nodes": {"whenUnknown": "off"}}
    expected = without_helm(program.manifests(contract=contract), "gpufence")
    same(expected, without_helm(helm(values)[0], "gpufence"), "the chart", program)


def too_old():
    try:
        helm(kubernetes="v1.29.9")
    except Refused as refusal:
        if "Kubernetes v1.29.9 has no matchConditions" in str(refusal):
            return
        raise
    raise Fault("it was rendered")


def reach():
    """What the program has no options for."""
    values = {
        "image": {"pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "resources": {"limits": {"memory": "1Gi"}},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    }
    objects, _ = helm(values)
    for item in (item for item in objects.values() if item["kind"] == "Deployment"):
        pod = item["spec"]["template"]["spec"]
        container = pod["containers"][0]
        found = {key: pod[key] for key in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity")}
        found["image"] = {"pullPolicy": container["imagePullPolicy"]}
        found["resources"] = container["resources"]
        expected = {
            **values,
            "nodeSelector": {"kubernetes.io/os": "linux", "pool": "system"},
            "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "50m", "memory": "64Mi"}},
        }
        if found != expected:
            raise Fault(f"{item['metadata']['name']} has {found}; expected {expected}")


def notes():
    enforce = {"contract": {"mode": "enforce"}}
    for values, expected in (
        ({}, ["contract.mode=enforce", "Nothing is changed", "helm uninstall r --namespace gpufence"]),
        (enforce, ["auditOnly=true --force-conflicts", "failure-policy=Ignore --overwrite"]),
        ({**enforce, "auditOnly": True}, ["registered for watching alone", "auditOnly=false"]),
        ({"tls": {"source": "files"}, "replicas": 1}, ["NOTE: tls.ca is empty", "NOTE: one replica"]),
    ):
        _, text = helm(values, name="r")
        if missing := [words for words in expected if words not in text]:
            raise Fault(f"with {values} the notes lack {missing}:\n{text}")
