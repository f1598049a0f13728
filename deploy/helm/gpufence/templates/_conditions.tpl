{{/*
Match conditions: which objects the API server need not ask about, as CEL that it evaluates itself. What they mean and
why they are sound is proved for those of `gpufence manifests`; a test holds that these are the same to the letter.
*/}}

{{/* Whether a pod could reach a pool: by a toleration, a request, or a nodeName. Takes the contract, the expression of
     the pod, and the condition under which its nodeName counts. */}}
{{- define "gpufence.concerns" -}}
{{- $contract := index . 0 }}{{ $pod := index . 1 -}}
{{- $keys := list "" -}}
{{- range $contract.pools }}{{ range .taints }}{{ $keys = append $keys .key }}{{ end }}{{ end -}}
{{- if ne (include "gpufence.action" (list $contract "node-name-bypass")) "off" -}}
{{ index . 2 }}{{ $pod }}.?spec.?nodeName.orValue('') != '' ||
{{ end -}}
{{ $pod }}.?spec.?tolerations.orValue([]).size() > 1000 ||
{{ $pod }}.?spec.?tolerations.orValue([]).exists(toleration, toleration.?key.orValue('') in {{ include "gpufence.celList" $keys }}) ||
{{ include "gpufence.requests" (list $contract $pod) }}
{{- end }}

{{/* Whether a pod could request a GPU of a pool, by a resource or by a marker. Takes the contract and the expression of
     the pod. */}}
{{- define "gpufence.requests" -}}
{{- $contract := index . 0 }}{{ $pod := index . 1 -}}
{{- $claims := false }}{{ $annotations := list -}}
{{- range $contract.pools }}{{ with .markers -}}
{{-   if .claims }}{{ $claims = true }}{{ end -}}
{{-   $annotations = concat $annotations (.annotations | default list) -}}
{{- end }}{{ end -}}
{{- /* By which name is looked at by the webhook: few pods have claims. */ -}}
{{- if $claims -}}
{{ $pod }}.?spec.?resourceClaims.orValue([]) != [] ||
{{ end -}}
{{- if $annotations -}}
{{ include "gpufence.celList" $annotations }}.exists(marker, marker in {{ $pod }}.?metadata.?annotations.orValue({})) ||
{{ end -}}
{{ include "gpufence.namesResource" . }}
{{- end }}

{{/* Whether a container names a resource of a pool. Takes the same. */}}
{{- define "gpufence.namesResource" -}}
{{- $contract := index . 0 }}{{ $pod := index . 1 -}}
{{- $names := list }}{{ $globs := list -}}
{{- range $contract.pools }}{{ range .resources -}}
{{-   if regexMatch "[]*?[{}\\\\!]" . }}{{ $globs = append $globs . }}{{ else }}{{ $names = append $names . }}{{ end -}}
{{- end }}{{ end -}}
{{- $tests := list -}}
{{- if $names }}{{ $tests = append $tests (printf "name in %s" (include "gpufence.celList" $names)) }}{{ end -}}
{{- range $globs | uniq | sortAlpha }}{{ $tests = append $tests (include "gpufence.celGlob" .) }}{{ end -}}
[{{ $pod }}.?spec.?containers.orValue([]), {{ $pod }}.?spec.?initContainers.orValue([])].exists(containers,
  containers != null && (containers.size() > 50 || containers.exists(container,
    [container.?resources.?requests.orValue({}), container.?resources.?limits.orValue({})].exists(amounts,
      amounts.size() > 20 || amounts.exists(name,
        {{ join " ||\n        " $tests }})))))
{{- end }}

{{/* Whether a pod is new or changed in what a decision depends on. */}}
{{- define "gpufence.podChanged" -}}
oldObject == null ||
object.spec != oldObject.spec
{{- $selection := .selection | default dict }}{{ $annotations := list $selection.annotation -}}
{{- range .pools -}}
{{-   with .models }}{{ $annotations = append $annotations .annotation }}{{ end -}}
{{-   with .markers }}{{ $annotations = concat $annotations (.annotations | default list) }}{{ end -}}
{{- end -}}
{{- range compact $annotations | uniq | sortAlpha }} ||
object.metadata.?annotations[?'{{ . }}'].orValue('') !=
  oldObject.metadata.?annotations[?'{{ . }}'].orValue('')
{{- end }}
{{- with $selection.label }} ||
object.metadata.?labels[?'{{ . }}'].orValue('') !=
  oldObject.metadata.?labels[?'{{ . }}'].orValue('')
{{- end }}
{{- end }}

{{/* The pod template of an object, at one of the three places where they lie. */}}
{{- define "gpufence.template" -}}
{{ . }}.?spec.?template.or({{ . }}.?spec.?jobTemplate.?spec.?template).or({{ . }}.?template).orValue({})
{{- end }}

{{/* Whether a workload template is new or changed. */}}
{{- define "gpufence.templateChanged" -}}
oldObject == null ||
{{ include "gpufence.template" "object" }} !=
{{ include "gpufence.template" "oldObject" }}
{{- end }}

{{/* Whether a custom resource changed in a field into which a path of the contract leads, or is new. */}}
{{- define "gpufence.customResourceChanged" -}}
oldObject == null
{{- $fields := list -}}
{{- range .customResources -}}
{{-   range .templates }}{{ $fields = append $fields (include "gpufence.pathField" .) }}{{ end -}}
{{-   range .podSpecs }}{{ $fields = append $fields (include "gpufence.pathField" .path) }}{{ end -}}
{{- end -}}
{{- range $fields | uniq | sortAlpha }} ||
{{-   $field := include "gpufence.celLiteral" . }}
object[?{{ $field }}].orValue({}) != oldObject[?{{ $field }}].orValue({})
{{- end }}
{{- end }}

{{/* The field with which a JSONPath begins, however it is written: $.spec.a, .spec.a, {.spec.a}, $["spec"].a. */}}
{{- define "gpufence.pathField" -}}
{{- $path := trimPrefix "$" (regexReplaceAll "^\\{(.*)\\}$" (trim .) "${1}" | trim) -}}
{{- if hasPrefix "[" $path -}}
{{- regexReplaceAll "^\\[(?:'([^']*)'|\"([^\"]*)\").*$" $path "${1}${2}" -}}
{{- else -}}
{{- regexFind "^[^.\\[]+" (trimPrefix "." $path) -}}
{{- end -}}
{{- end }}

{{/* Whether a change of a Namespace or a Node touches what the fence stands on. */}}
{{- define "gpufence.leverChanged" -}}
{{- $namespaceLabels := include "gpufence.selectedLabels" . | fromJsonArray }}{{ $nodeLabels := list }}{{ $taints := list -}}
{{- range .pools -}}
{{-   $nodeLabels = concat $nodeLabels (keys .nodeSelector) -}}
{{-   with .models }}{{ $nodeLabels = append $nodeLabels .nodeLabel }}{{ end -}}
{{-   range .taints }}{{ $taints = append $taints .key }}{{ end -}}
{{- end -}}
request.resource.resource == 'namespaces' ?
  {{ if include "gpufence.guardsNamespaceNames" . }}oldObject == null ||
  {{ end }}{{ include "gpufence.celList" $namespaceLabels }}{{ include "gpufence.labelsDiffer" . }} :
  {{ include "gpufence.celList" $nodeLabels }}{{ include "gpufence.labelsDiffer" . }} ||
  object.?spec.?taints.orValue([]).size() > 1000 ||
  oldObject != null && oldObject.?spec.?taints.orValue([]).size() > 1000 ||
  {{ include "gpufence.celTaints" (list "object" $taints) }} !=
    (oldObject == null ? [] : {{ include "gpufence.celTaints" (list "oldObject" $taints) }})
{{- end }}

{{/* Of a list of labels: whether one differs, or is there on a new object. */}}
{{- define "gpufence.labelsDiffer" -}}
.exists(key, object.metadata.?labels[?key].orValue('-') !=
    (oldObject == null ? '-' : oldObject.metadata.?labels[?key].orValue('-')))
{{- end }}

{{/* The taints of some keys. Takes the expression of the node, and the keys. */}}
{{- define "gpufence.celTaints" -}}
{{ index . 0 }}.?spec.?taints.orValue([]).filter(taint, taint.?key.orValue('') in {{ include "gpufence.celList" (index . 1) }})
{{- end }}

{{/* Whether it is not a kubelet that brings its own node along. */}}
{{- define "gpufence.isNoRegistration" -}}
!(request.resource.resource == 'nodes' && oldObject == null &&
  request.userInfo.username == 'system:node:' + object.metadata.?name.orValue('') &&
  'system:nodes' in request.userInfo.?groups.orValue([]))
{{- end }}

{{/* Whether no scheduler of the contract asks. */}}
{{- define "gpufence.isNoScheduler" -}}
{{- $schedulers := list -}}
{{- range (.identities | default dict).schedulers | default (list "system:kube-scheduler") -}}
{{-   $schedulers = append $schedulers (include "gpufence.celLiteral" .) -}}
{{- end -}}
!(request.userInfo.username in [{{ join ", " $schedulers }}])
{{- end }}

{{/* A list of strings, each once and in order. */}}
{{- define "gpufence.celList" -}}
{{- $literals := list -}}
{{- range . | uniq | sortAlpha }}{{ $literals = append $literals (include "gpufence.celLiteral" .) }}{{ end -}}
[{{ join ", " $literals }}]
{{- end }}

{{/* A string. */}}
{{- define "gpufence.celLiteral" -}}
'{{ . | replace "\\" "\\\\" | replace "'" "\\'" }}'
{{- end }}

{{/* Whether a name matches a glob. Of any but the plainest it is asked whether the name is an extended resource's at
     all: that is a call too many, never a pod too few. */}}
{{- define "gpufence.celGlob" -}}
{{- if regexMatch "^[A-Za-z0-9._/-]*\\*$" . -}}
name.startsWith('{{ trimSuffix "*" . }}')
{{- else if regexMatch "^\\*[A-Za-z0-9._/-]*$" . -}}
name.endsWith('{{ trimPrefix "*" . }}')
{{- else if regexMatch "^[A-Za-z0-9._/-]*\\*[A-Za-z0-9._/-]*$" . -}}
{{- $ends := splitList "*" . -}}
(name.startsWith('{{ first $ends }}') && name.endsWith('{{ last $ends }}'))
{{- else -}}
name.contains('/')
{{- end -}}
{{- end }}
