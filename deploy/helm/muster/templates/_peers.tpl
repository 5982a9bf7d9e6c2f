{{/* Shared rules of network policies: peers outside of Muster. */}}

{{/* DNS servers. Policies apply to the ports of their pods, not of their Service. */}}
{{- define "muster.toDns" -}}
ports:
{{- range .Values.networkPolicy.dns.ports }}
- {port: {{ int . }}, protocol: UDP}
- {port: {{ int . }}, protocol: TCP}
{{- end }}
{{- with .Values.networkPolicy.dns.peers }}
to: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* The API server. */}}
{{- define "muster.toApi" -}}
ports:
{{- range .Values.networkPolicy.apiServer.ports }}
- {port: {{ int . }}, protocol: TCP}
{{- end }}
{{- with .Values.networkPolicy.apiServer.cidrs }}
to:
{{- range . }}
- ipBlock: {cidr: {{ quote . }}}
{{- end }}
{{- end }}
{{- end -}}
