{{/* Labels of every object. Selectors take those of gpufence.selector alone, which never change. */}}
{{- define "gpufence.labels" -}}
app.kubernetes.io/name: gpufence
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "gpufence.selector" -}}
app.kubernetes.io/name: gpufence
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "gpufence.probeNamespace" -}}
{{ .Release.Namespace }}-probe
{{- end }}

{{- define "gpufence.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/*
The contract that is installed: the one of the values, with the source of the certificate, time to drain, and the
probe's namespace enforced before all else, so that the controller's dry run is judged as it will be. In mode audit
there is nothing to prove.
*/}}
{{- define "gpufence.contract" -}}
{{- $contract := deepCopy .Values.contract -}}
{{- $_ := set $contract.tls "source" (ternary "managed" "files" (eq .Values.tls.source "managed")) -}}
{{- if eq $contract.tls.source "files" -}}
{{-   $_ := set $contract.tls "cert" "/etc/gpufence/tls/tls.crt" -}}
{{-   $_ := set $contract.tls "key" "/etc/gpufence/tls/tls.key" -}}
{{- end -}}
{{- if regexMatch "^0+s$" $contract.server.drain -}}
{{-   $_ := set $contract.server "drain" "12s" -}}
{{- end -}}
{{- /* Helm reads YAML 1.1, in which a bare off is false. */ -}}
{{- range $rule, $action := $contract.rules }}{{ if kindIs "bool" $action }}{{ $_ := set $contract.rules $rule "off" }}{{ end }}{{ end -}}
{{- if kindIs "bool" $contract.templates }}{{ $_ := set $contract "templates" "off" }}{{ end -}}
{{- with $contract.nodes }}{{ if kindIs "bool" .whenUnknown }}{{ $_ := set . "whenUnknown" "off" }}{{ end }}{{ end -}}
{{- if ne $contract.mode "audit" -}}
{{-   $probe := dict "namespaces" (list (include "gpufence.probeNamespace" .)) "mode" "enforce" -}}
{{-   $_ := set $contract "rollout" (prepend ($contract.rollout | default list) $probe) -}}
{{- end -}}
{{ toYaml $contract }}
{{- end }}

{{/* What a rule does. Takes the contract, as its values or as it is installed, and a rule. */}}
{{- define "gpufence.action" -}}
{{- $rule := index . 1 }}{{ $action := get ((index . 0).rules | default dict) $rule -}}
{{- if kindIs "bool" $action }}off{{ else }}{{ $action | default (ternary "off" "deny" (eq $rule "lever-change")) }}{{ end -}}
{{- end }}

{{/* The labels of namespaces that a contract's selectors read, as a JSON array. */}}
{{- define "gpufence.selectedLabels" -}}
{{- $selectors := list -}}
{{- range .pools }}{{ $selectors = append $selectors (.namespaces | default dict).selector }}{{ end -}}
{{- range .rollout }}{{ $selectors = append $selectors .selector }}{{ end -}}
{{- $labels := list -}}
{{- range compact $selectors -}}
{{-   $labels = concat $labels (keys (.matchLabels | default dict)) -}}
{{-   range .matchExpressions }}{{ $labels = append $labels .key }}{{ end -}}
{{- end -}}
{{ toJson $labels }}
{{- end }}

{{/* Whether a contract names namespaces that may use a pool, or that are let off: true or nothing. */}}
{{- define "gpufence.guardsNamespaceNames" -}}
{{- $modes := list "audit" "warn" "enforce" }}{{ $weaker := list }}{{ $reached := false }}{{ $guards := false -}}
{{- $mode := .mode -}}
{{- range $modes }}{{ if eq . $mode }}{{ $reached = true }}{{ end }}{{ if not $reached }}{{ $weaker = append $weaker . }}{{ end }}{{ end -}}
{{- range .pools }}{{ if (.namespaces | default dict).names }}{{ $guards = true }}{{ end }}{{ end -}}
{{- range .rollout -}}
{{-   $names := .namespaces | default list -}}
{{-   if and $names (not (has "*" $names)) (has .mode $weaker) }}{{ $guards = true }}{{ end -}}
{{- end -}}
{{- range .exemptions -}}
{{-   if and .namespaces (not .users) (not .groups) (not .serviceAccounts) }}{{ $guards = true }}{{ end -}}
{{- end -}}
{{- if $guards }}true{{ end -}}
{{- end }}

{{/* Whether a label of a namespace decides anything: true or nothing. */}}
{{- define "gpufence.readsNamespaces" -}}
{{- if include "gpufence.selectedLabels" .Values.contract | fromJsonArray }}true{{ end -}}
{{- end }}

{{/* Whether a label or a taint of a node decides anything: true or nothing. */}}
{{- define "gpufence.readsNodes" -}}
{{- if ne (include "gpufence.action" (list .Values.contract "node-name-bypass")) "off" }}true{{ end -}}
{{- end }}

{{/* What a replica reads of the cluster, separated by commas. */}}
{{- define "gpufence.followed" -}}
{{- $namespaces := ternary "namespaces" "" (eq (include "gpufence.readsNamespaces" .) "true") -}}
{{- $nodes := ternary "nodes" "" (eq (include "gpufence.readsNodes" .) "true") -}}
{{ compact (list $namespaces $nodes) | join "," }}
{{- end }}

{{/* Whether a replica reads anything from the API server: true or nothing. */}}
{{- define "gpufence.serverNeedsApi" -}}
{{- if or (eq .Values.tls.source "managed") (include "gpufence.followed" .) (include "gpufence.auditsItself" .) }}true{{ end -}}
{{- end }}

{{/* Whether the replicas audit: true or nothing. */}}
{{- define "gpufence.auditsItself" -}}
{{- if not (regexMatch "^0+[smhd]$" .Values.contract.audit.interval) }}true{{ end -}}
{{- end }}

{{/* The rules of a role that may audit, and keep the reports that the contract wants. */}}
{{- define "gpufence.auditRules" -}}
- apiGroups: [""]
  resources: [events, namespaces, nodes, pods, podtemplates, replicationcontrollers]
  verbs: [list]
- apiGroups: [apps]
  resources: [daemonsets, deployments, replicasets, statefulsets]
  verbs: [list]
- apiGroups: [batch]
  resources: [cronjobs, jobs]
  verbs: [list]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list]
{{- range .Values.contract.customResources }}
- apiGroups: [{{ .group }}]
  resources: [{{ .resource }}]
  verbs: [list]
{{- end }}
{{- with get (dict "openreports" (list "openreports.io" "reports") "policyreports" (list "wgpolicyk8s.io" "policyreports")) .Values.contract.audit.reports }}
- apiGroups: [{{ index . 0 }}]
  resources: [cluster{{ index . 1 }}]
  verbs: [get, create, update]
- apiGroups: [{{ index . 0 }}]
  resources: [{{ index . 1 }}]
  verbs: [get, list, create, update, delete]
{{- end }}
{{- end }}

{{/* Rather on other nodes than on a pool's: a node may carry the label before it carries the taint. */}}
{{- define "gpufence.affinity" -}}
{{- with .Values.affinity -}}
{{ toYaml . }}
{{- else -}}
{{- $labels := dict }}
{{- range .Values.contract.pools }}
{{- range $key, $value := .nodeSelector }}
{{- $_ := set $labels $key (append (index $labels $key | default list) $value | uniq) }}
{{- end }}
{{- end -}}
nodeAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    {{- range $key := keys $labels | sortAlpha }}
    - weight: 100
      preference:
        matchExpressions:
          - key: {{ $key | quote }}
            operator: NotIn
            values: {{ index $labels $key | toJson }}
    {{- end }}
{{- end }}
{{- end }}

{{/* Whether the registrations only watch: true or nothing. */}}
{{- define "gpufence.audits" -}}
{{- if or .Values.auditOnly (eq .Values.contract.mode "audit") }}true{{ end -}}
{{- end }}

{{/* What the failurePolicy of a hook for pods shall come to. Takes the root, the key below failurePolicy, and what
     it comes to where the contract is enforced. */}}
{{- define "gpufence.target" -}}
{{- $root := index . 0 }}{{ $key := index . 1 }}{{ $usual := index . 2 -}}
{{- $chosen := index $root.Values.failurePolicy $key -}}
{{- $enforces := and (eq $root.Values.contract.mode "enforce") (not $root.Values.auditOnly) -}}
{{- if and (eq $chosen "Fail") (not $enforces) -}}
{{-   fail (printf "failurePolicy.%s Fail cannot be had with %s: nothing may make it stand in anyone's way. Valid is Fail with contract.mode enforce and without auditOnly, or Ignore" $key (ternary "auditOnly" (printf "contract.mode %s" $root.Values.contract.mode) $root.Values.auditOnly)) -}}
{{- end -}}
{{- $chosen | default (ternary $usual "Ignore" $enforces) -}}
{{- end }}

{{/*
The failurePolicy that a hook for pods is applied with: Ignore, as everything that has not proved itself. Where the
controller has raised it to Fail and that is still the target, an upgrade leaves it: to lower it for a moment would
open the fence, and Helm's server-side apply would refuse to take the field from the controller.
*/}}
{{- define "gpufence.failurePolicy" -}}
{{- $kind := index . 0 }}{{ $hook := index . 1 }}{{ $target := index . 2 -}}
{{- $policy := "Ignore" -}}
{{- if eq $target "Fail" -}}
{{-   range (lookup "admissionregistration.k8s.io/v1" $kind "" "gpufence").webhooks -}}
{{-     if eq .name $hook }}{{ $policy = .failurePolicy }}{{ end -}}
{{-   end -}}
{{- end -}}
{{- $policy -}}
{{- end }}

{{/* Refuses what no schema can. */}}
{{- define "gpufence.check" -}}
{{- $namespace := .Release.Namespace -}}
{{- if or (eq $namespace "default") (hasPrefix "kube-" $namespace) (gt (len $namespace) 57) -}}
{{-   fail (printf "the namespace %q cannot hold an installation; valid is a namespace of its own, neither default nor kube-*, of at most 57 characters, such as gpufence (--namespace gpufence --create-namespace)" $namespace) -}}
{{- end -}}
{{- if semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version -}}
{{-   fail (printf "Kubernetes %s has no matchConditions; valid is 1.30 or newer, or take gpufence manifests --kubernetes-version, which leaves them out" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- range $key := list "listen" "metrics" -}}
{{-   $address := index $.Values.contract.server $key -}}
{{-   if not (regexMatch "^(0\\.0\\.0\\.0|\\[::\\]):[1-9][0-9]*$" $address) -}}
{{-     fail (printf "contract.server.%s is %s, which no API server reaches in a pod; valid is an address such as 0.0.0.0:8443" $key $address) -}}
{{-   end -}}
{{- end -}}
{{- if eq (include "gpufence.port" .Values.contract.server.listen) (include "gpufence.port" .Values.contract.server.metrics) -}}
{{-   fail (printf "contract.server.metrics is %s, the port of contract.server.listen; valid is an address with a port of its own, such as 0.0.0.0:9090" .Values.contract.server.metrics) -}}
{{- end -}}
{{- if and .Values.tls.ca (ne .Values.tls.source "files") -}}
{{-   fail (printf "tls.ca is only for tls.source files; with %s the CA is set in the cluster" .Values.tls.source) -}}
{{- end -}}
{{- end }}

{{/* The port of an address such as 0.0.0.0:8443. */}}
{{- define "gpufence.port" -}}
{{ regexFind "[0-9]+$" . }}
{{- end }}
