{{/* What all pods have in common. */}}

{{- define "muster.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.runAsUser }}
runAsGroup: {{ .Values.runAsUser }}
fsGroup: {{ .Values.runAsUser }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "muster.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* (root, component, values): how pods are known. No versions: a new version of the chart alone restarts nobody. */}}
{{- define "muster.podMetadata" -}}
labels:
  {{- include "muster.selector" (list (index . 0) (index . 1)) | nindent 2 }}
  app.kubernetes.io/part-of: muster
  {{- with (index . 0).Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with (index . 2).podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  kubectl.kubernetes.io/default-container: {{ index . 1 }}
  {{- with (index . 2).podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* (root, component, values): whose pods they are, where they may be, and what they are not given. */}}
{{- define "muster.podSpec" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
{{- $selector := include "muster.selector" (list $root (index . 1)) | fromYaml -}}
serviceAccountName: {{ include "muster.name" (list $root (index . 1)) }}
enableServiceLinks: false
securityContext: {{- include "muster.podSecurity" $root | nindent 2 }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
- {{- toYaml (merge (dict "labelSelector" (dict "matchLabels" $selector)) .) | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Who this pod is, for logs, metrics and traces. */}}
{{- define "muster.identity" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- end -}}

{{/* The variables by which OpenTelemetry is told where traces go. */}}
{{- define "muster.tracing" -}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: service.namespace={{ include "muster.fullname" . }},k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME),k8s.pod.uid=$(POD_UID),k8s.node.name=$(NODE_NAME)
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .Values.tracing.endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ .Values.tracing.protocol | quote }}
- name: OTEL_TRACES_SAMPLER
  value: {{ .Values.tracing.sampler | quote }}
{{- with .Values.tracing.samplerArgument }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ . | quote }}
{{- end }}
{{- with .Values.tracing.headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ . }}, key: headers}}
{{- end }}
{{- end -}}

{{/* Probes by the gRPC health service, which is served without TLS at a port of its own. */}}
{{- define "muster.probes" -}}
startupProbe:
  grpc: {port: 8081, service: muster.liveness}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  grpc: {port: 8081, service: muster.liveness}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  grpc: {port: 8081}
  periodSeconds: 3
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}
