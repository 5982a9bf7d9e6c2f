{{/* The pod that prepares etcd's users. */}}
{{- define "muster.etcdUsersPod" -}}
{{- $values := dict "terminationGracePeriodSeconds" 5 -}}
{{- $secure := ne .Values.tls.mode "none" -}}
{{ omit (include "muster.podSpec" (list . "etcd-users" $values) | fromYaml) "affinity" "topologySpreadConstraints" | toYaml }}
restartPolicy: OnFailure
automountServiceAccountToken: false
containers:
- name: etcd-users
  image: {{ include "muster.image" (list .Values.image .Chart.AppVersion) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  securityContext: {{- include "muster.containerSecurity" . | nindent 4 }}
  args:
  - prepare-etcd
  - --etcd={{ include "muster.etcdEndpoints" . }}
  - --prefix={{ .Values.etcd.prefix }}
  - --user=muster
  - --password-file=/etc/muster/etcd-password/password
  - --root-password-file=/etc/muster/etcd-password/root-password
  {{- if $secure }}
  - --tls-certificate-file=/etc/muster/etcd/tls.crt
  - --tls-key-file=/etc/muster/etcd/tls.key
  - --tls-ca-file=/etc/muster/etcd/ca.crt
  {{- end }}
  env:
  - {name: HOME, value: /tmp}
  resources:
    requests: {cpu: 50m, memory: 64Mi}
    limits: {memory: 256Mi}
  volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: etcd-password, mountPath: /etc/muster/etcd-password, readOnly: true}
  {{- if $secure }}
  - {name: etcd-tls, mountPath: /etc/muster/etcd, readOnly: true}
  {{- end }}
volumes:
- {name: tmp, emptyDir: {sizeLimit: 64Mi}}
- {name: etcd-password, secret: {secretName: {{ include "muster.etcdAuth" . | quote }}, defaultMode: 0440}}
{{- if $secure }}
- {name: etcd-tls, secret: {secretName: {{ include "muster.certificate" (list . "etcd-client") | quote }}, defaultMode: 0440}}
{{- end }}
{{- end -}}
