{{/*
Match conditions: which objects the API server need not ask about, as CEL that it evaluates itself. What they mean and
why they are sound is proved for those of `gpufence manifests`; a test holds that these are the same to the letter.
*/}}

{{/* Whether an object tolerates a key of a pool's taints or every key, or names a resource of a pool. Takes the
     contract and the expression of the object. */}}
{{- define "gpufence.concerns" -}}
{{- $contract := index . 0 }}{{ $pod := index . 1 -}}
{{- $keys := list "" -}}
{{- range $contract.pools }}{{ range .taints }}{{ $keys = append $keys .key }}{{ end }}{{ end -}}
{{ $pod }}.?spec.?tolerations.orValue([]).exists(toleration, toleration.?key.orValue('') in {{ include "gpufence.celList" $keys }}) ||
{{ include "gpufence.requests" . }}
{{- end }}

{{/* Whether a container names a resource of a pool. Takes the same. */}}
{{- define "gpufence.requests" -}}
{{- $contract := index . 0 }}{{ $pod := index . 1 -}}
{{- $names := list }}{{ $globs := list -}}
{{- range $contract.pools }}{{ range .resources -}}
{{-   if regexMatch "[]*?[{}\\\\!]" . }}{{ $globs = append $globs . }}{{ else }}{{ $names = append $names . }}{{ end -}}
{{- end }}{{ end -}}
{{- $tests := list -}}
{{- if $names }}{{ $tests = append $tests (printf "name in %s" (include "gpufence.celList" $names)) }}{{ end -}}
{{- range $globs | uniq | sortAlpha }}{{ $tests = append $tests (include "gpufence.celGlob" .) }}{{ end -}}
[{{ $pod }}.?spec.?containers.orValue([]), {{ $pod }}.?spec.?initContainers.orValue([])].exists(containers,
  containers != null && containers.exists(container,
    [container.?resources.?requests, container.?resources.?limits].exists(amounts,
      amounts.orValue({}).exists(name,
        {{ join " ||\n        " $tests }}))))
{{- end }}

{{/* Whether a pod is new or changed in what a decision depends on. */}}
{{- define "gpufence.podChanged" -}}
oldObject == null ||
object.spec != oldObject.spec
{{- $annotations := list -}}
{{- range .pools }}{{ with .models }}{{ $annotations = append $annotations .annotation }}{{ end }}{{ end -}}
{{- range $annotations | uniq | sortAlpha }} ||
object.metadata.?annotations[?'{{ . }}'].orValue('') !=
  oldObject.metadata.?annotations[?'{{ . }}'].orValue('')
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

{{/* A list of strings, each once and in order. None of them can hold a quotation mark: all are names. */}}
{{- define "gpufence.celList" -}}
{{- $literals := list -}}
{{- range . | uniq | sortAlpha }}{{ $literals = append $literals (printf "'%s'" .) }}{{ end -}}
[{{ join ", " $literals }}]
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
