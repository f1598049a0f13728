"""The chart in a real API server, by the Helm library: what an upgrade keeps, what it takes back, and in which order
everything goes.

Needs the folder with etcd and kube-apiserver in KUBEBUILDER_ASSETS (tests/e2e/assets.sh). No pod ever runs, and so the
part of gpufence's controller is played here.
"""

import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request

import helm_python
from helm_python import _native

from sources import CHART, KUBECTL, Fault, Refused, command

TOKEN = "checks-of-deploy"
ENFORCE = {"contract": {"mode": "enforce"}}
WATCH = {**ENFORCE, "auditOnly": True}
VALIDATING = "validatingwebhookconfiguration"


def checks(_program, _checker):
    """One scenario, or None where there is no API server."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    scenario = functools.partial(live, pathlib.Path(assets)) if assets else None
    yield "helm, live: install, arm, upgrade, disarm, uninstall (KUBEBUILDER_ASSETS)", scenario


def live(assets):
    with tempfile.TemporaryDirectory() as folder, api_server(assets, pathlib.Path(folder)) as server:
        chart = suited(pathlib.Path(folder), server.minor())
        server.kubectl("create", "namespace", "gpufence")
        release = Release(server.kubeconfig, chart)

        release.install(ENFORCE)
        expect("installed", server.hooks(), "Ignore Ignore Ignore; target Fail; /validate")
        # As the controller does.
        server.kubectl("patch", "secret", "gpufence-ca", "--patch", '{"data": {"ca.crt": "QUFB"}}')
        arm = [
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
            {"op": "replace", "path": "/webhooks/2/failurePolicy", "value": "Fail"},
            {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "QUFB"},
        ]
        server.kubectl("patch", VALIDATING, "gpufence", "--type", "json", "--patch", json.dumps(arm))

        release.upgrade({**ENFORCE, "replicas": 3})
        expect("still armed after an upgrade", server.hooks(), "Fail Ignore Fail; target Fail; /validate")
        expect("the CA after an upgrade", server.get("secret", "{.data}"), '{"ca.crt":"QUFB"}')
        expect("the caBundle after an upgrade", server.get(VALIDATING, "{.webhooks[0].clientConfig.caBundle}"), "QUFB")

        # The notes say --force-conflicts; without it nothing half-done stays.
        try:
            release.upgrade(WATCH)
        except Refused as refused:
            expect("the conflict names the field", "failurePolicy" in str(refused), True)
        else:
            raise Fault("Helm took the failurePolicy from the controller; the notes need not say --force-conflicts")
        release.upgrade(WATCH, force_conflicts=True)
        expect("watching alone", server.hooks(), "Ignore Ignore Ignore; target Ignore; /audit/validate")
        release.upgrade(ENFORCE)
        expect("to be armed again", server.hooks(), "Ignore Ignore Ignore; target Fail; /validate")

        release.uninstall()
        gone = [kind for kind in server.deleted() if not kind.startswith("secrets sh.helm")]
        first = {f"{kind}webhookconfigurations gpufence" for kind in ("mutating", "validating")}
        if set(gone[:2]) != first or len(gone) < 15:
            raise Fault(f"the registrations did not go first, or not all went: {gone}")


def expect(what, found, expected):
    if found != expected:
        raise Fault(f"{what}: found {found!r}; expected {expected!r}")


class Release:
    """A release of the chart."""

    def __init__(self, kubeconfig, chart):
        self.config = helm_python.Config(kubeconfig_path=kubeconfig, namespace="gpufence")
        self.chart = chart

    def install(self, values):
        self.config.install(self.chart, "gpufence", values)

    def upgrade(self, values, **options):
        # The wrapper's own upgrade has no force_conflicts, which the library's has.
        config, context = self.config._raw(), self.config._context_arg(None)
        with helm_python.Chart.load(self.chart) as chart:
            arguments = [chart._raw(), None, "gpufence", json.dumps(values), json.dumps(options)]
            try:
                _native.call_string("helm_upgrade", config, context, *arguments)
            except helm_python.HelmError as error:
                raise Refused(str(error)) from error

    def uninstall(self):
        self.config.uninstall("gpufence")


class Server:
    """A running API server."""

    def __init__(self, folder, port):
        self.folder = folder
        self.address = f"https://127.0.0.1:{port}"
        self.kubeconfig = folder / "kubeconfig"
        cluster = {"server": self.address, "insecure-skip-tls-verify": True}
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "here", "user": {"token": TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here", "namespace": "gpufence"}}],
        }))

    def kubectl(self, *words):
        return command(KUBECTL, "--kubeconfig", self.kubeconfig, "--cache-dir", self.folder / "cache", *words)

    def get(self, kind, path):
        name = "gpufence-ca" if kind == "secret" else "gpufence"
        return self.kubectl("get", kind, name, "--output", f"jsonpath={path}")

    def hooks(self):
        return self.get(
            VALIDATING,
            r"{.webhooks[*].failurePolicy}; target {.metadata.annotations.gpufence\.io/failure-policy}; "
            "{.webhooks[0].clientConfig.service.path}",
        )

    def minor(self):
        return int(json.loads(self.kubectl("get", "--raw", "/version"))["minor"].rstrip("+"))

    def deleted(self):
        """What was deleted, in order, by the server's own audit log."""
        events = [json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines()]
        events.sort(key=lambda event: event["requestReceivedTimestamp"])
        deletions = [event["objectRef"] for event in events if event["verb"] == "delete"]
        return [f"{deleted['resource']} {deleted['name']}" for deleted in deletions]


@contextlib.contextmanager
def api_server(assets, folder):
    """Starts etcd and the API server, and ends both."""
    command("openssl", "genrsa", "-out", folder / "accounts.key", "2048")
    command("openssl", "rsa", "-in", folder / "accounts.key", "-pubout", "-out", folder / "accounts.pub")
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    rules = [{"level": "Metadata"}]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
    (folder / "policy.yaml").write_text(json.dumps(policy))
    etcd_port, port = free_ports(2)
    etcd = f"http://127.0.0.1:{etcd_port}"
    programs = [
        [
            assets / "etcd", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}", "--listen-peer-urls=http://127.0.0.1:0",
        ],
        [
            assets / "kube-apiserver", f"--etcd-servers={etcd}", f"--cert-dir={folder / 'certs'}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={port}", "--endpoint-reconciler-type=none",
            "--service-account-issuer=https://localhost", f"--service-account-key-file={folder / 'accounts.pub'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}", f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.0.0.0/24", f"--audit-log-path={folder / 'audit.log'}",
            f"--audit-policy-file={folder / 'policy.yaml'}",
        ],
    ]
    with contextlib.ExitStack() as running:
        for words in programs:
            log = running.enter_context(open(folder / f"{words[0].name}.log", "w"))
            process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
            running.callback(process.wait)
            running.callback(process.terminate)
        server = Server(folder, port)
        ready(server.address, process, folder / "kube-apiserver.log")
        yield server


def ready(address, process, log):
    request = urllib.request.Request(f"{address}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
    for _ in range(240):
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=2):
                return
        if process.poll() is not None:
            break
        time.sleep(0.25)
    raise Fault(f"the API server did not become ready:\n{log.read_text()[-2000:]}")


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in held]
    for listener in held:
        listener.close()
    return ports


def suited(folder, minor):
    """A copy of the chart without what a server of 1.`minor` does not know yet."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    if minor >= 30:
        return chart
    changes = {
        "Chart.yaml": (r"kubeVersion: .*\n", ""),
        "templates/_helpers.tpl": ('"<1.30.0-0"', '"<1.0.0-0"'),
        "templates/registrations.yaml": (r"    matchConditions:\n(?:      .*\n)*", ""),
        "templates/deployments.yaml": (r".*matchLabelKeys.*\n", ""),
        "templates/service.yaml": (r"policy/v1\n", "policy/v1beta1\n"),
    }
    for path, (pattern, replacement) in changes.items():
        text, count = re.subn(pattern, replacement, (chart / path).read_text())
        if count == 0:
            raise Fault(f"{path} has nothing that matches {pattern}; it is left out for a server of 1.{minor}")
        (chart / path).write_text(text)
    return chart
