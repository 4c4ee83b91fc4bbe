{{- define "gateway.labels" }}{app.kubernetes.io/name: {{ .Values.name }}, app.kubernetes.io/component: gateway}{{ end }}

{{- define "deployment" }}{{ if .Values.triton.enabled }}{{ .Values.name }}{{ else }}gateway{{ end }}{{ end }}

{{- define "pod.labels" -}}
app.kubernetes.io/name: {{ .Values.name }}
app.kubernetes.io/component: gateway
{{- if .Values.triton.enabled }}
llm-d.ai/engine-type: {{ .Values.triton.engineType }}
{{- end }}
{{- end }}

{{- define "pod.security" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- if .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml .Values.imagePullSecrets | nindent 2 }}
{{- end }}
securityContext:
  {runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000, seccompProfile: {type: RuntimeDefault}}
{{- end }}

{{- define "gpu.nodes" -}}
nodeSelector: {{- toYaml .Values.triton.nodeSelector | nindent 2 }}
tolerations: {{- toYaml .Values.triton.tolerations | nindent 2 }}
{{- end }}

{{- define "locked" }}securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}{{ end }}

# Without a keys file the Secret has to exist, so that no gateway is open to all clients by mistake.
{{- define "api.keys" }}{{ if .Values.apiKeys }}yes{{ else if .Values.namedKeys }}{{ else }}yes{{ end }}{{ end }}

{{- define "gateway.container" -}}
- name: gateway
  image: {{ .Values.image }}
  env:
    - {name: GATEWAY_CONFIG, value: /etc/gateway/gateway.yaml}
    - {name: GATEWAY_INTERNAL_PORT, value: "9001"}
    - {name: GATEWAY_LAME_DUCK_S, value: "{{ .Values.gateway.lameDuckSeconds }}"}
    - {name: GATEWAY_SHUTDOWN_S, value: "{{ .Values.gateway.shutdownSeconds }}"}
    {{- if include "api.keys" . }}
    - {name: GATEWAY_API_KEYS, valueFrom: {secretKeyRef: {name: gateway-keys, key: api-keys}}}
    {{- end }}
    {{- if .Values.namedKeys }}
    - {name: GATEWAY_KEYS_FILE, value: /etc/gateway-keys/keys.yaml}
    {{- end }}
    {{- if .Values.gateway.env }}{{ toYaml .Values.gateway.env | nindent 4 }}{{ end }}
  ports: [{name: http, containerPort: 9000}, {name: internal, containerPort: 9001}]
  startupProbe: {httpGet: {path: /health/live, port: internal}, periodSeconds: 1, failureThreshold: 60}
  readinessProbe: {httpGet: {path: /health/ready, port: internal}, periodSeconds: 1, failureThreshold: 1}
  # Does not depend on Triton, whose failure a restart of the gateway does not fix.
  livenessProbe: {httpGet: {path: /health/live, port: internal}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 6}
  resources: {{- toYaml .Values.gateway.resources | nindent 4 }}
  {{- include "locked" . | nindent 2 }}
  volumeMounts:
    - {name: settings, mountPath: /etc/gateway, readOnly: true}    # a folder: files of a subPath never change
    - {name: models, mountPath: /models, readOnly: true}
    - {name: gateway-tmp, mountPath: /tmp}
    {{- if .Values.namedKeys }}
    - {name: named-keys, mountPath: /etc/gateway-keys, readOnly: true}
    {{- end }}
    {{- if .Values.gateway.volumeMounts }}{{ toYaml .Values.gateway.volumeMounts | nindent 4 }}{{ end }}
{{- end }}

{{- define "gateway.volumes" -}}
- {name: settings, configMap: {name: gateway}}
- {name: models, persistentVolumeClaim: {claimName: models, readOnly: true}}
- {name: gateway-tmp, emptyDir: {medium: Memory, sizeLimit: 64Mi}}
{{- if .Values.namedKeys }}
- {name: named-keys, secret: {secretName: {{ .Values.namedKeys }}, defaultMode: 0440}}
{{- end }}
{{- if .Values.gateway.volumes }}{{ toYaml .Values.gateway.volumes | nindent 0 }}{{ end }}
{{- end }}

{{- define "triton.container" -}}
- name: triton
  restartPolicy: Always    # a sidecar: it starts before the gateway and ends after it
  image: {{ .Values.triton.image }}
  # On loopback: who reached its ports would need no key.
  {{- if .Values.multiNode.enabled }}
  command: [sh, /scripts/leader.sh, "{{ .Values.multiNode.gpus }}"]
  {{- else }}
  command: [sh, /models/repository/launch.sh]
  args: [--http-address=127.0.0.1, --grpc-address=127.0.0.1, --metrics-address=127.0.0.1, --exit-timeout-secs=30]
  {{- end }}
  # HOME: of compiled kernels.
  env: [{name: HOME, value: /cache}, {name: USER, value: triton}, {name: HF_HUB_OFFLINE, value: "1"}]
  startupProbe: {periodSeconds: 5, timeoutSeconds: 5, failureThreshold: {{ .Values.triton.startupFailures }}, exec: {command:
    [python3, -ISc, 'from urllib.request import urlopen; urlopen("http://127.0.0.1:8000/v2/health/ready", timeout=4)']}}
  livenessProbe:    # the gateway's last verdict on the engine, whose failure Triton does not tell; without one Triton's own
    exec:
      command:
        - python3
        - -ISc
        - |
          from urllib.error import HTTPError
          from urllib.request import urlopen
          try:
              urlopen("http://127.0.0.1:9001/health/live?engine=1", timeout=2)
          except HTTPError as error:
              if error.code == 503:
                  raise SystemExit("the engine gives no tokens")
          except Exception:
              pass
          urlopen("http://127.0.0.1:8000/v2/health/live", timeout=2)
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 31    # longer than the longest prompt may take: timeouts.first_token_s, 300 s
  resources: {{- toYaml .Values.triton.resources | nindent 4 }}
  {{- include "locked" . | nindent 2 }}
  volumeMounts: {{- include "triton.mounts" . | nindent 4 }}
{{- end }}

{{- define "triton.mounts" -}}
- {name: models, mountPath: /models, readOnly: true}
- {name: cache, mountPath: /cache}
- {name: triton-tmp, mountPath: /tmp}
- {name: shm, mountPath: /dev/shm}
{{- if .Values.multiNode.enabled }}
- {name: scripts, mountPath: /scripts, readOnly: true}
- {name: mpi-ssh, mountPath: /etc/mpi-ssh, readOnly: true}
{{- end }}
{{- end }}

{{- define "triton.volumes" -}}
- {name: cache, emptyDir: {sizeLimit: 20Gi}}
- {name: triton-tmp, emptyDir: {sizeLimit: 20Gi}}
- {name: shm, emptyDir: {medium: Memory, sizeLimit: {{ .Values.triton.shm }}}}
{{- if .Values.multiNode.enabled }}
- {name: scripts, configMap: {name: ranks}}
- {name: mpi-ssh, secret: {secretName: mpi-ssh}}
{{- end }}
{{- end }}
