{{/*
Deployment of a service. Takes root, component, values, command (its name in `muster run`), port (0: it serves no calls),
args, and optionally: portName (grpc), clients, certificate (Secret of its certificate), volumes, mounts, ports, token (it uses the Kubernetes API),
scaled (a HorizontalPodAutoscaler sets its replicas).
*/}}
{{- define "muster.deployment" -}}
{{- $root := .root -}}
{{- $values := .values -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "muster.name" (list $root .component) }}
  namespace: {{ $root.Release.Namespace | quote }}
  {{- include "muster.metadata" (list $root .component) | nindent 2 }}
spec:
  {{- if not .scaled }}
  replicas: {{ $values.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  selector:
    matchLabels: {{- include "muster.selector" (list $root .component) | nindent 6 }}
  # New pods are ready before old ones terminate and hand over, so every call is served during an upgrade.
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  template:
    metadata: {{- include "muster.podMetadata" (list $root .component $values) | nindent 6 }}
    spec:
      {{- include "muster.podSpec" (list $root .component $values) | nindent 6 }}
      automountServiceAccountToken: {{ default false .token }}
      containers:
      - name: {{ .component }}
        image: {{ include "muster.image" (list $root.Values.image $root.Chart.AppVersion) }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        securityContext: {{- include "muster.containerSecurity" $root | nindent 10 }}
        args:
        - run
        - {{ .command }}
        - --listen={{ if .port }}{{ $root.Values.listenAddress }}:{{ .port }}{{ else }}127.0.0.1:7005{{ end }}
        - --health-listen={{ $root.Values.listenAddress }}:8081
        {{- if $root.Values.metrics.enabled }}
        - --metrics-listen={{ $root.Values.listenAddress }}:8080
        {{- end }}
        - --instance=$(POD_NAME)
        - --log-level={{ $root.Values.logLevel }}
        {{- if .certificate }}
        - --tls-certificate-file=/etc/muster/tls/tls.crt
        - --tls-key-file=/etc/muster/tls/tls.key
        - --tls-ca-file=/etc/muster/tls/ca.crt
        {{- with .clients }}
        - --tls-clients={{ join "," . }}
        {{- end }}
        {{- else if .port }}
        - --insecure
        {{- end }}
        {{- range .args }}
        - {{ . | quote }}
        {{- end }}
        {{- with $values.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        env:
        {{- include "muster.identity" $root | nindent 8 }}
        # The root file system is read-only, also for libraries that write to a home directory.
        - {name: HOME, value: /tmp}
        {{- if $root.Values.tracing.endpoint }}
        {{- include "muster.tracing" $root | nindent 8 }}
        {{- end }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        {{- if .port }}
        - {name: {{ default "grpc" .portName }}, containerPort: {{ .port }}, protocol: TCP}
        {{- end }}
        - {name: health, containerPort: 8081, protocol: TCP}
        {{- if $root.Values.metrics.enabled }}
        - {name: metrics, containerPort: 8080, protocol: TCP}
        {{- end }}
        {{- with .ports }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- include "muster.probes" $root | nindent 8 }}
        resources: {{- toYaml $values.resources | nindent 10 }}
        volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if .certificate }}
        - {name: tls, mountPath: /etc/muster/tls, readOnly: true}
        {{- end }}
        {{- with .mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- if $root.Values.tracing.endpoint }}
        {{- include "muster.tracingMounts" $root | nindent 8 }}
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
      - {name: tmp, emptyDir: {sizeLimit: 256Mi}}
      {{- with .certificate }}
      - {name: tls, secret: {secretName: {{ . | quote }}, defaultMode: 0440}}
      {{- end }}
      {{- with .volumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- if $root.Values.tracing.endpoint }}
      {{- include "muster.tracingVolumes" $root | nindent 6 }}
      {{- end }}
      {{- with $values.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end -}}
