{{/* What objects are called, and the labels by which they are found. */}}

{{- define "muster.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "muster" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-muster" (.Release.Name | trunc 33 | trimSuffix "-") -}}
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
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* (root, component): labels of an object. */}}
{{- define "muster.labels" -}}
{{- $root := index . 0 -}}
{{ include "muster.selector" . }}
app.kubernetes.io/part-of: muster
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
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
