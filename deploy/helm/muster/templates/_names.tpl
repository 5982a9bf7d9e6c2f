{{/* What objects are called, and the labels by which they are found. */}}

{{/* Names of Services begin with a letter and have no dots; those of releases may be otherwise. */}}
{{- define "muster.fullname" -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if regexMatch "^[0-9]" $release -}}
{{- printf "muster-%s" $release | trunc 40 | regexFind ".*[^-]" -}}
{{- else if contains "muster" $release -}}
{{- $release | trunc 40 | regexFind ".*[^-]" -}}
{{- else -}}
{{- printf "%s-muster" ($release | trunc 33 | regexFind ".*[^-]") -}}
{{- end -}}
{{- end -}}

{{/* (root, component): name of what belongs to a service. */}}
{{- define "muster.name" -}}
{{- printf "%s-%s" (include "muster.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{/* (root, component): how a service is called from any namespace. */}}
{{- define "muster.host" -}}
{{- printf "%s.%s.svc" (include "muster.name" .) (index . 0).Release.Namespace -}}
{{- end -}}

{{/* (root, component): what never changes, to select pods by. */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* (root, component): labels of an object. Those that it is found by are no others' to set. */}}
{{- define "muster.labels" -}}
{{- $root := index . 0 -}}
{{- $own := include "muster.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "muster" -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "app.kubernetes.io/version" (toString $root.Chart.AppVersion) -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- toYaml (merge $own $root.Values.commonLabels) -}}
{{- end -}}

{{/* (root, component, annotations besides): metadata but the namespace, for objects of any scope. */}}
{{- define "muster.metadata" -}}
{{- $root := index . 0 -}}
{{- $annotations := merge (dict) (index (append . (dict)) 2) $root.Values.commonAnnotations -}}
labels: {{- include "muster.labels" (list $root (index . 1)) | nindent 2 }}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* repository, tag and digest of an image, and the tag that it has otherwise. */}}
{{- define "muster.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default (index . 1) $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The services by component, with their values: those that are installed. */}}
{{- define "muster.services" -}}
cluster-state: clusterState
coordinator: coordinator
{{- if ne .Values.placement.implementation "external" }}
placement: placement
{{- end }}
binding: binding
lifecycle: lifecycle
{{- end -}}
