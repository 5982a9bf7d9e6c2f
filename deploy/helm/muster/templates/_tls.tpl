{{/*
Certificates: which there are, whom they are for, and how the chart makes them.

Services trust one authority, etcd and its clients another, so that nobody but the coordinator gets to shake hands with etcd.
*/}}

{{/* (root, purpose): Secret of a certificate; empty if there is none. */}}
{{- define "muster.certificate" -}}
{{- $root := index . 0 -}}
{{- $purpose := index . 1 -}}
{{- $keys := dict "cluster-state" "clusterState" "coordinator" "coordinator" "placement" "placement" "binding" "binding" "lifecycle" "lifecycle" "forecast" "forecast" "console" "console" "etcd" "etcd" "etcd-peer" "etcdPeer" "etcd-client" "etcdClient" -}}
{{- $given := "" -}}
{{- if eq $root.Values.tls.mode "secret" -}}
{{- $given = index $root.Values.tls.secrets (default "" (index $keys $purpose)) | default "" -}}
{{- end -}}
{{- if ne $root.Values.tls.mode "none" -}}
{{- default (printf "%s-tls" (include "muster.name" .)) $given -}}
{{- else if eq $purpose "lifecycle" -}}
{{- printf "%s-tls" (include "muster.name" .) -}}
{{- end -}}
{{- end -}}

{{/* (root, component): the name of a service in its certificate. */}}
{{- define "muster.identityName" -}}
{{- include "muster.host" . -}}
{{- end -}}

{{/* (root, component): DNS names of the certificate of a service, as a list. */}}
{{- define "muster.dnsNames" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $name := include "muster.name" . -}}
{{- $names := list $name (printf "%s.%s" $name $root.Release.Namespace) (include "muster.host" .) (printf "muster-%s" (include "muster.base" $component)) -}}
{{- toYaml (concat $names $root.Values.tls.extraDnsNames | uniq) -}}
{{- end -}}

{{/* Names of etcd's members and their Service. */}}
{{- define "muster.etcdDnsNames" -}}
{{- $host := include "muster.host" (list . "etcd") -}}
{{- $names := list (include "muster.name" (list . "etcd")) $host (printf "%s.%s" $host .Values.clusterDomain) (printf "*.%s" $host) (printf "*.%s.%s" $host .Values.clusterDomain) -}}
{{- toYaml (concat $names .Values.tls.extraDnsNames | uniq) -}}
{{- end -}}

{{/*
All certificates, as {services: {purpose: {cn, names}}, etcd: {...}}: by authority, which is a Secret <fullname>-<authority>-ca.
*/}}
{{- define "muster.certificates" -}}
{{- $root := . -}}
{{- $services := dict -}}
{{- $components := list "lifecycle" -}}
{{- if ne .Values.tls.mode "none" -}}
{{- $components = append $components "client" -}}
{{- range include "muster.pools" . | fromYamlArray -}}
{{- $components = concat $components (list (print "cluster-state" .suffix) (print "coordinator" .suffix) (print "placement" .suffix) (print "binding" .suffix)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.forecast.enabled (ne .Values.tls.mode "none") -}}
{{- $components = append $components "forecast" -}}
{{- end -}}
{{- if and .Values.console.enabled (ne .Values.tls.mode "none") -}}
{{- $components = append $components "console" -}}
{{- end -}}
{{- range $component := $components -}}
{{- if or (ne $component "lifecycle") (include "muster.servesWebhooks" $root) -}}
{{- $names := include "muster.dnsNames" (list $root $component) | fromYamlArray -}}
{{- if eq $component "client" -}}
{{- $names = list "muster-client" (include "muster.host" (list $root "client")) -}}
{{- end -}}
{{- $_ := set $services $component (dict "cn" (include "muster.name" (list $root $component)) "names" $names) -}}
{{- end -}}
{{- end -}}
{{- $all := dict "services" $services -}}
{{- if and .Values.etcd.enabled (ne .Values.tls.mode "none") -}}
{{- $names := include "muster.etcdDnsNames" . | fromYamlArray -}}
{{- $etcd := dict "etcd" (dict "cn" (include "muster.name" (list . "etcd")) "names" $names) -}}
{{- $_ := set $etcd "etcd-peer" (dict "cn" (include "muster.name" (list . "etcd-peer")) "names" $names) -}}
{{- $_ := set $etcd "etcd-client" (dict "cn" (include "muster.name" (list . "etcd-client")) "names" (list (include "muster.name" (list . "etcd-client")))) -}}
{{- $_ := set $all "etcd" $etcd -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}
