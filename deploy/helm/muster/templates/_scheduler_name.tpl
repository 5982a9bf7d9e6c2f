{{- /* CEL: the pod asks for no scheduler. The API server has already set the default. */}}
{{- define "muster.hasNoScheduler" -}}
!has(object.spec.schedulerName) || object.spec.schedulerName in ["", "default-scheduler"]
{{- end }}

{{- /* CEL: no node was chosen for the pod. */}}
{{- define "muster.hasNoNode" -}}
!has(object.spec.nodeName) || object.spec.nodeName == ""
{{- end }}

{{- /* CEL: the patch that sets Muster's scheduler name. */}}
{{- define "muster.schedulerNamePatch" -}}
JSONPatch{op: "add", path: "/spec/schedulerName", value: {{ first .Values.schedulerNames | quote }}}
{{- end }}
