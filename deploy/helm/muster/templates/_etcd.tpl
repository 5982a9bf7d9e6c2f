{{/* Addresses of etcd for its clients. */}}
{{- define "muster.etcdEndpoints" -}}
{{- $root := . -}}
{{- $endpoints := list -}}
{{- if .Values.etcd.enabled -}}
{{- range $number := until (int .Values.etcd.replicas) -}}
{{- $endpoints = append $endpoints (printf "%s-%d.%s:2379" (include "muster.name" (list $root "etcd")) $number (include "muster.host" (list $root "etcd"))) -}}
{{- end -}}
{{- else -}}
{{- $endpoints = .Values.etcd.external.endpoints -}}
{{- end -}}
{{- join "," $endpoints -}}
{{- end -}}

{{/* Secret with the passwords of etcd's users. */}}
{{- define "muster.etcdAuth" -}}
{{- default (include "muster.name" (list . "etcd-auth")) .Values.etcd.auth.existingSecret -}}
{{- end -}}
