{{/* Common parts of all pods. */}}

{{- define "muster.podSecurity" -}}
runAsNonRoot: true
{{- /* null: the cluster assigns one from the range of the namespace, as OpenShift does. */}}
{{- with .Values.runAsUser }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "muster.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* (root, component, values): metadata of pods. No versions: a new version of the chart alone restarts no pod. */}}
{{- define "muster.podMetadata" -}}
{{- $values := index . 2 -}}
{{- $own := include "muster.selector" (list (index . 0) (index . 1)) | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "muster" -}}
labels: {{- merge $own (default dict $values.podLabels) (index . 0).Values.commonLabels | toYaml | nindent 2 }}
annotations:
  {{- merge (dict) (default dict $values.podAnnotations) (dict "kubectl.kubernetes.io/default-container" (index . 1)) | toYaml | nindent 2 }}
{{- end -}}

{{/* (root, component, values): account, scheduling and security of pods. */}}
{{- define "muster.podSpec" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
{{- $selector := include "muster.selector" (list $root (index . 1)) | fromYaml -}}
serviceAccountName: {{ include "muster.name" (list $root (index . 1)) }}
enableServiceLinks: false
securityContext: {{- include "muster.podSecurity" $root | nindent 2 }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
nodeSelector: {{- merge (dict) (default dict $values.nodeSelector) (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $values.affinity }}
affinity: {{- toYaml $values.affinity | nindent 2 }}
{{- else }}
# Not a spread constraint: kube-scheduler ignores nodes that lack the label of one of them, and with it all constraints.
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 50
      podAffinityTerm:
        topologyKey: topology.kubernetes.io/zone
        labelSelector:
          matchLabels: {{- toYaml $selector | nindent 12 }}
{{- end }}
{{- with $root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
- {{- toYaml (merge (dict "labelSelector" (dict "matchLabels" $selector)) .) | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Identity of the pod for logs, metrics, traces and other replicas. */}}
{{- define "muster.identity" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- end -}}

{{/* OpenTelemetry's variables for the export of traces. */}}
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
{{- with toString .Values.tracing.samplerArgument }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ . | quote }}
{{- end }}
{{- if .Values.tracing.tls.caSecret }}
- name: OTEL_EXPORTER_OTLP_CERTIFICATE
  value: /etc/muster/otlp-ca/ca.crt
{{- end }}
{{- if .Values.tracing.tls.certificateSecret }}
- name: OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE
  value: /etc/muster/otlp/tls.crt
- name: OTEL_EXPORTER_OTLP_CLIENT_KEY
  value: /etc/muster/otlp/tls.key
{{- end }}
{{- with .Values.tracing.headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: headers}}
{{- end }}
{{- end -}}

{{/* Mounts of the trace collector's authority and of the client certificate for it. */}}
{{- define "muster.tracingMounts" -}}
{{- if .Values.tracing.tls.caSecret }}
- {name: otlp-ca, mountPath: /etc/muster/otlp-ca, readOnly: true}
{{- end }}
{{- if .Values.tracing.tls.certificateSecret }}
- {name: otlp, mountPath: /etc/muster/otlp, readOnly: true}
{{- end }}
{{- end -}}

{{/* Their volumes, with only the needed keys of each Secret. */}}
{{- define "muster.tracingVolumes" -}}
{{- with .Values.tracing.tls.caSecret }}
- {name: otlp-ca, secret: {secretName: {{ . | quote }}, defaultMode: 0440, items: [{key: ca.crt, path: ca.crt}]}}
{{- end }}
{{- with .Values.tracing.tls.certificateSecret }}
- {name: otlp, secret: {secretName: {{ . | quote }}, defaultMode: 0440, items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}}
{{- end }}
{{- end -}}

{{/* Probes of the gRPC health service, which has its own port without TLS. */}}
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
