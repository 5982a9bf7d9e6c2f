{{/* Node pools, each with services of its own, whose components have the pool's name as a suffix. */}}

{{/*
The pools as a list of {name, suffix, schedulerNames, nodeSelector, etcdPrefix}: first the one without a name, which has the
nodes of no other.
*/}}
{{- define "muster.pools" -}}
{{- $names := list -}}
{{- $schedulers := .Values.schedulerNames -}}
{{- range .Values.pools -}}
{{- $names = append $names .name -}}
{{- $schedulers = concat $schedulers .schedulerNames -}}
{{- end -}}
{{- range list $names $schedulers -}}
{{- $seen := dict -}}
{{- range . -}}
{{- if hasKey $seen . -}}
{{- fail (printf "pools: %q is there twice; every pool has a name and scheduler names of its own, which the release's schedulerNames do not contain" .) -}}
{{- end -}}
{{- $_ := set $seen . true -}}
{{- end -}}
{{- end -}}
{{- if and $names (eq .Values.placement.implementation "external") -}}
{{- fail "pools need a placement for each, which the chart installs: set placement.implementation to other than external, or install a release for each pool" -}}
{{- end -}}
{{- $own := dict "name" "" "suffix" "" "schedulerNames" .Values.schedulerNames "nodeSelector" "" "etcdPrefix" .Values.etcd.prefix -}}
{{- if $names -}}
{{- $_ := set $own "nodeSelector" (printf "%s notin (%s)" .Values.poolLabel (join "," $names)) -}}
{{- end -}}
{{- $pools := list $own -}}
{{- range .Values.pools -}}
{{- $component := printf "%s-cluster-state-%s" (include "muster.fullname" $) .name -}}
{{- if gt (len $component) 63 -}}
{{- fail (printf "pools: the Service %q has more than 63 characters: shorten the name of the pool, or set fullnameOverride" $component) -}}
{{- end -}}
{{- $pools = append $pools (dict "name" .name "suffix" (printf "-%s" .name) "schedulerNames" .schedulerNames
  "nodeSelector" (printf "%s=%s" $.Values.poolLabel .name) "etcdPrefix" (printf "%s/pools/%s" $.Values.etcd.prefix .name)) -}}
{{- end -}}
{{- toYaml $pools -}}
{{- end -}}

{{/* Component of a pool -> component of the pool without a name. */}}
{{- define "muster.base" -}}
{{- regexReplaceAll "^(cluster-state|coordinator|placement|binding)-.+$" . "${1}" -}}
{{- end -}}

{{/* Scheduler names of all pools, separated by commas. */}}
{{- define "muster.schedulerNames" -}}
{{- $names := .Values.schedulerNames -}}
{{- range .Values.pools -}}
{{- $names = concat $names .schedulerNames -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}
