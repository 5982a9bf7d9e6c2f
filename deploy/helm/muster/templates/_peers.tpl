{{/* Rules of network policies that several need: what is reached outside of Muster. */}}

{{/* The servers of DNS. Policies see the ports of their pods, not that of the Service before them. */}}
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
