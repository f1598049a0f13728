"""Writes the files of deploy/ that follow from the contract, as `gpufence manifests` renders it.

Usage: generate.py PROGRAM [CONTRACT], with the built-in contract where none is named
"""

import pathlib
import sys

import yaml

from sources import DEPLOY, Program, objects, read_contract

KINDS = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
# Of the CronJob that audits, and how its objects are told from all others.
SCHEDULE = "0 6 * * *"
AUDIT = "\nmetadata:\n  name: gpufence-audit\n"
# What has the same name, and is there where the replicas audit.
OF_REPLICAS = ["kind: Lease", "kind: Role", "kind: RoleBinding"]


def generated(program, contract=None):
    """The text of each generated file, by its path in deploy/."""
    enforce = {**(contract or {}), "mode": "enforce"}
    enforced = program.manifests(contract=enforce)
    watched = program.manifests("--audit-only", contract=enforce)
    stream = program.text("--tls", "cert-manager", contract=contract)
    # The documents as they are written there, not as they would be written again.
    certificates = [text for text in stream.split("---\n") if text.startswith("apiVersion: cert-manager.io/")]
    stream = program.text("--audit-cron-job", SCHEDULE, contract=contract)
    audits = [text for text in stream.split("---\n") if AUDIT in text and text.split("\n")[1] not in OF_REPLICAS]
    return {
        "base/gpufence.yaml": program.text(contract=contract),
        "overlays/enforce/contract.yaml": enforced["ConfigMap gpufence/gpufence"]["data"]["contract.yaml"],
        "overlays/enforce/registrations.yaml": registrations(enforced),
        "overlays/audit/registrations.yaml": registrations(watched),
        "components/audit-cron-job/audit.yaml": "---\n".join(audits),
        "../certs/cert-manager/certificates.yaml": "---\n".join(certificates),
    }


def registrations(objects):
    """A patch with all that an overlay changes in the registrations, for the hooks that there are."""
    patches = []
    for name in (f"{kind} gpufence" for kind in KINDS):
        item = objects[name]
        hooks = [
            {
                "name": hook["name"],
                "clientConfig": {"service": {"path": hook["clientConfig"]["service"]["path"]}},
                "timeoutSeconds": hook["timeoutSeconds"],
            }
            for hook in item["webhooks"]
        ]
        metadata = {"name": item["metadata"]["name"], "annotations": item["metadata"]["annotations"]}
        head = {key: item[key] for key in ("apiVersion", "kind")}
        patches.append({**head, "metadata": metadata, "webhooks": hooks})
    return yaml.safe_dump_all(patches, sort_keys=False)


def main(program, contract=None):
    contract = contract and read_contract(pathlib.Path(contract))
    for path, text in generated(Program(program), contract).items():
        file = (DEPLOY / path).resolve()
        file.write_text(text)
        print(f"wrote {file}")


if __name__ == "__main__":
    main(*sys.argv[1:])
