"""The Containerfile and the versions that several files name. That it builds is static.sh's to say."""

import re

import yaml

from sources import CHART, DEPLOY, ROOT, Fault


def checks(program, _):
    """One check for each thing that several files must agree on."""
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    container = (DEPLOY / "Containerfile").read_text()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    def versions():
        named = {
            "the program": program.run("--version").split()[-1],
            "deploy/Containerfile": re.search("^ARG VERSION=(.*)$", container, re.MULTILINE)[1],
            "the chart's version": chart["version"],
            "the chart's appVersion": chart["appVersion"],
        }
        if wrong := {place: found for place, found in named.items() if found != version}:
            raise Fault(f"Cargo.toml says {version}, but {wrong}")

    def final_stage():
        stage = container[container.rindex("\nFROM ") :]
        lines = [line for line in stage.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
        words = [line.split(maxsplit=1) for line in lines]
        found = {word: rest for word, rest in words if word in ("FROM", "USER", "ENTRYPOINT", "CMD")}
        expected = {"FROM": "scratch", "USER": "65532:65532", "ENTRYPOINT": '["/gpufence"]', "CMD": '["serve"]'}
        if found != expected:
            raise Fault(f"the last stage has {found}; expected {expected}")
        if any(word == "RUN" for word, _ in words):
            raise Fault("the last stage has a RUN, for which it has no shell")

    def user():
        numbers = {
            context[key]
            for item in program.manifests().values()
            if item["kind"] == "Deployment"
            for context in [item["spec"]["template"]["spec"]["securityContext"]]
            for key in ("runAsUser", "runAsGroup", "fsGroup")
        }
        if numbers != {65532}:
            raise Fault(f"the pods run as {numbers}, the image as 65532")

    return [
        ("versions: Cargo.toml, program, Containerfile and chart agree", versions),
        ("Containerfile: from scratch, by number, serve", final_stage),
        ("Containerfile: the user of the manifests", user),
    ]
