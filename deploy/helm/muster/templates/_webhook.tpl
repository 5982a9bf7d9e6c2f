{{/* (root, authority of the certificate; empty: injected by cert-manager): the webhooks that lifecycle serves. */}}
{{- define "muster.webhooks" -}}
{{- $root := index . 0 -}}
{{- $annotations := dict -}}
{{- if not (index . 1) -}}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/%s" $root.Release.Namespace (include "muster.name" (list $root "lifecycle"))) -}}
{{- end -}}
{{- if $root.Values.quota.enabled }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: {{ printf "%s-%s-quota" $root.Release.Namespace (include "muster.fullname" $root) }}
  {{- include "muster.metadata" (list $root "lifecycle" $annotations) | nindent 2 }}
webhooks:
- name: quota.muster.dev
  clientConfig:
    service:
      name: {{ include "muster.name" (list $root "lifecycle") }}
      namespace: {{ $root.Release.Namespace | quote }}
      path: /quota
      port: 443
    {{- with index . 1 }}
    caBundle: {{ . }}
    {{- end }}
  rules:
  - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods], scope: Namespaced}
  # System pods and Muster's own must start even if lifecycle is down.
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: {{- append $root.Values.quota.exemptNamespaces $root.Release.Namespace | uniq | toYaml | nindent 6 }}
  admissionReviewVersions: [v1]
  sideEffects: NoneOnDryRun
  failurePolicy: {{ $root.Values.quota.failurePolicy }}
  timeoutSeconds: {{ $root.Values.quota.timeoutSeconds }}
{{- end }}
{{- if and $root.Values.quota.enabled $root.Values.deviceWebhook.enabled }}
---
{{- end }}
{{- if $root.Values.deviceWebhook.enabled }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: {{ printf "%s-%s-devices" $root.Release.Namespace (include "muster.fullname" $root) }}
  {{- include "muster.metadata" (list $root "lifecycle" $annotations) | nindent 2 }}
webhooks:
- name: devices.muster.dev
  clientConfig:
    service:
      name: {{ include "muster.name" (list $root "lifecycle") }}
      namespace: {{ $root.Release.Namespace | quote }}
      path: /devices
      port: 444
    {{- with index . 1 }}
    caBundle: {{ . }}
    {{- end }}
  rules:
  - {operations: [UPDATE], apiGroups: [resource.k8s.io], apiVersions: [v1], resources: [resourceclaims/status], scope: Namespaced}
  # Only updates that allocate devices.
  matchConditions:
  - name: allocates
    expression: >-
      has(object.status) && has(object.status.allocation) && (!has(oldObject.status) || !has(oldObject.status.allocation)
      || object.status.allocation != oldObject.status.allocation)
  admissionReviewVersions: [v1]
  sideEffects: NoneOnDryRun
  failurePolicy: {{ $root.Values.deviceWebhook.failurePolicy }}
  timeoutSeconds: {{ $root.Values.deviceWebhook.timeoutSeconds }}
{{- end }}
{{- end -}}

{{/* Whether lifecycle serves a webhook: "true" or empty. */}}
{{- define "muster.servesWebhooks" -}}
{{- if or .Values.quota.enabled .Values.deviceWebhook.enabled -}}true{{- end -}}
{{- end -}}
