{{- define "fedaux.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "fedaux.mounts" -}}
- {name: state, mountPath: /state}
- {name: tmp, mountPath: /tmp}
{{- if .Values.data.claim }}
- {name: data, mountPath: {{ .Values.data.path | quote }}, readOnly: true}
{{- end }}
{{- end }}

{{- /* A container that runs a script of the folder: dict "root" $ "name" "superlink" "resources" …. */}}
{{- define "fedaux.container" -}}
name: {{ .name }}
image: {{ .root.Values.image | quote }}
imagePullPolicy: {{ .root.Values.imagePullPolicy }}
command: ["bash", "/state/{{ .root.Values.role }}/{{ .name }}.sh"]
env: [{name: HOME, value: /tmp}]
securityContext: {{- include "fedaux.security" .root | nindent 2 }}
volumeMounts: {{- include "fedaux.mounts" .root | nindent 2 }}
resources: {{- toYaml .resources | nindent 2 }}
{{- end }}
