"""What `kubectl kustomize` makes of deploy/, against `gpufence manifests` with the options that mean the same."""

import collections
import pathlib
import shutil
import tempfile

from compare import same
from generate import SCHEDULE, generated
from schemas import VERSIONS
from sources import DEPLOY, ROOT, Fault, Refused, kustomize, read_contract

# The objects of an installation with the built-in contract. A change here is one that everybody should see.
KINDS = {
    "ClusterRole": 2,
    "ClusterRoleBinding": 2,
    "ConfigMap": 1,
    "Deployment": 2,
    "Lease": 1,
    "MutatingWebhookConfiguration": 1,
    "Namespace": 2,
    "PodDisruptionBudget": 1,
    "ResourceQuota": 1,
    "Role": 3,
    "RoleBinding": 3,
    "Secret": 1,
    "Service": 1,
    "ServiceAccount": 2,
    "ValidatingWebhookConfiguration": 1,
}
CUSTOMISED = ["--tls", "cert-manager", "--image", "registry.example.com/platform/gpufence:0.1.0", "--replicas", "3"]
CONTRACTS = sorted((ROOT / "tests" / "deploy" / "contracts").glob("*.yaml"))


def checks(program, checker):
    """Freshness of what is committed, equality of each build, for the built-in contract and others."""
    for path, text in generated(program).items():
        yield f"deploy/{path} is what gpufence renders", lambda path=path, text=text: fresh(path, text)
    for version in VERSIONS:
        everything = ["--kubernetes-version", version, "--network-policy", "--monitor", "service"]
        yield (
            f"gpufence manifests for Kubernetes {version}",
            lambda everything=everything: checker.check(program.manifests(*everything)),
        )
    yield "the base has the objects that it should", lambda: counted(kustomize(DEPLOY / "base"))
    for name, check in builds(program, checker, ROOT, None):
        yield f"kustomize, built-in contract: {name}", check
    for file in CONTRACTS:
        yield f"kustomize, contract {file.stem}: all builds", lambda file=file: rebuilt(program, checker, file)
    yield "kustomize refuses to put both namespaces into one", refuses_namespace


def fresh(path, text):
    if (DEPLOY / path).read_text() != text:
        raise Fault("it is stale; run make manifests and commit what changed")


def counted(objects):
    found = collections.Counter(item["kind"] for item in objects.values())
    if found != KINDS:
        raise Fault(f"found {dict(found)}; expected {KINDS}")


def builds(program, checker, root, contract):
    """Each build below a copy of the checkout, whose generated files are from the contract."""
    enforce = {**(contract or {}), "mode": "enforce"}

    def check(folder, *options, contract=enforce, effective=lambda objects: objects):
        found = kustomize(root / folder)
        checker.check(found)
        same(program.manifests(*options, contract=contract), effective(found), folder, program)

    return [
        ("base", lambda: check("deploy/base", contract=contract)),
        ("overlays/enforce", lambda: check("deploy/overlays/enforce")),
        ("overlays/audit", lambda: check("deploy/overlays/audit", "--audit-only")),
        ("the component audit-cron-job", lambda: audited(program, checker, root, contract)),
        (
            "a user's overlay, with the component cert-manager",
            lambda: check("tests/deploy/customised", *CUSTOMISED, effective=lambda found: overruled(found, program)),
        ),
    ]


def rebuilt(program, checker, file):
    """All builds after `make manifests` with a contract, in a copy."""
    contract = read_contract(file)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for part in ("certs", "deploy", "tests/deploy/customised"):
            shutil.copytree(ROOT / part, root / part)
        for path, text in generated(program, contract).items():
            (root / "deploy" / path).write_text(text)
        for name, check in builds(program, checker, root, contract):
            try:
                check()
            except (Fault, Refused) as fault:
                raise Fault(f"{name}:\n{fault}") from fault


def overruled(objects, program):
    """The objects of the component cert-manager as the program renders them: with the environment of the replicas
    applied to the contract, and without a token where nothing is read."""
    environments = []
    for item in objects.values():
        if item["kind"] == "Deployment":
            container = item["spec"]["template"]["spec"]["containers"][0]
            ours = [variable for variable in container["env"] if variable["name"].startswith("GPUFENCE__")]
            container["env"] = [variable for variable in container["env"] if variable not in ours]
            environments.append({variable["name"]: variable["value"] for variable in ours})
    if len(environments) != 2 or environments[0] != environments[1]:
        raise Fault(f"the Deployments have different environments: {environments}")
    data = objects["ConfigMap gpufence/gpufence"]["data"]
    data["contract.yaml"] = program.run("config", contract=data["contract.yaml"], environment=environments[0])
    if "ClusterRole gpufence" not in objects:
        objects["Deployment gpufence/gpufence"]["spec"]["template"]["spec"]["automountServiceAccountToken"] = False
    return objects


def audited(program, checker, root, contract):
    """An overlay of the base with the component, as the README describes it."""
    with tempfile.TemporaryDirectory() as folder:
        overlay = pathlib.Path(folder)
        shutil.copytree(root / "deploy", overlay / "deploy")
        text = "resources: [deploy/base]\ncomponents: [deploy/components/audit-cron-job]\n"
        (overlay / "kustomization.yaml").write_text(text)
        found = kustomize(overlay)
    checker.check(found)
    expected = program.manifests("--audit-cron-job", SCHEDULE, contract=contract)
    same(expected, found, "the component audit-cron-job", program)


def refuses_namespace():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        shutil.copytree(DEPLOY, root / "deploy")
        (root / "kustomization.yaml").write_text("namespace: other\nresources: [deploy/base]\n")
        try:
            kustomize(root)
        except Refused as refused:
            if "namespace transformation produces ID conflict" in str(refused):
                return
            raise
        raise Fault("it did; the comments in deploy/base say otherwise")
