{{/* Names of objects, and their labels. */}}

{{/* Service names begin with a letter and have no dots; release names need not. */}}
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

{{/* (root, component): name of a service's objects. */}}
{{- define "muster.name" -}}
{{- printf "%s-%s" (include "muster.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{/* (root, component): DNS name of a service from any namespace. */}}
{{- define "muster.host" -}}
{{- printf "%s.%s.svc" (include "muster.name" .) (index . 0).Release.Namespace -}}
{{- end -}}

{{/* (root, component): the selector labels, which never change. */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* (root, component): labels of an object. Selector labels cannot be overridden. */}}
{{- define "muster.labels" -}}
{{- $root := index . 0 -}}
{{- $own := include "muster.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "muster" -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "app.kubernetes.io/version" (toString $root.Chart.AppVersion) -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- toYaml (merge $own $root.Values.commonLabels) -}}
{{- end -}}

{{/* (root, component, additional annotations): metadata without the namespace, for objects of any scope. */}}
{{- define "muster.metadata" -}}
{{- $root := index . 0 -}}
{{- $annotations := merge (dict) (index (append . (dict)) 2) $root.Values.commonAnnotations -}}
labels: {{- include "muster.labels" (list $root (index . 1)) | nindent 2 }}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Reference of an image by repository, tag and digest, with a default tag. */}}
{{- define "muster.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default (index . 1) $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The installed services by component, with their values. */}}
{{- define "muster.services" -}}
{{- range include "muster.pools" . | fromYamlArray }}
cluster-state{{ .suffix }}: clusterState
coordinator{{ .suffix }}: coordinator
{{- if ne $.Values.placement.implementation "external" }}
placement{{ .suffix }}: placement
{{- end }}
binding{{ .suffix }}: binding
{{- end }}
lifecycle: lifecycle
{{- if .Values.forecast.enabled }}
forecast: forecast
{{- end }}
{{- if .Values.console.enabled }}
console: console
{{- end }}
{{- end -}}
