{{/* (root, authority of the certificate; empty: injected by cert-manager): the webhook that guards reserved quota. */}}
{{- define "muster.webhook" -}}
{{- $root := index . 0 -}}
{{- $annotations := dict -}}
{{- if not (index . 1) -}}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/%s" $root.Release.Namespace (include "muster.name" (list $root "lifecycle"))) -}}
{{- end -}}
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
{{- end -}}
