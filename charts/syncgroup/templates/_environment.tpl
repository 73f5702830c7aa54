{{/* The one place where a value gets the name of the variable that the operator reads (its settings.py). */}}
{{- define "syncgroup.settings" -}}
workers: WORKERS
resyncSeconds: RESYNC_S
requestsPerSecond: REQUESTS_PER_S
burst: BURST
collectEverySeconds: COLLECT_EVERY_S
checkClustersSeconds: CHECK_CLUSTERS_S
clusterLostSeconds: CLUSTER_LOST_S
leaderElection: LEADER_ELECTION
{{- end }}

{{- define "syncgroup.electionSettings" -}}
leaseSeconds: LEASE_S
renewSeconds: RENEW_S
retrySeconds: RETRY_S
pollSeconds: POLL_S
{{- end }}

{{/* Variables for those settings that are given; takes the settings and the names. */}}
{{- define "syncgroup.given" -}}
{{- $settings := .settings }}
{{- range $value, $variable := .names }}
{{- if hasKey $settings $value }}
- name: SYNCGROUP_OPERATOR_{{ $variable }}
  value: {{ get $settings $value | toString | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "syncgroup.environment" -}}
- name: SYNCGROUP_OPERATOR_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: SYNCGROUP_OPERATOR_IDENTITY
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: SYNCGROUP_OPERATOR_RUNTIME_IMAGE
  value: {{ include "syncgroup.image" (dict "image" .Values.runtime.image "appVersion" .Chart.AppVersion) | quote }}
{{- with .Values.runtime.libraryHash }}
- name: SYNCGROUP_OPERATOR_LIBRARY_HASH
  value: {{ . | quote }}
{{- end }}
{{- with .Values.watchNamespaces }}
- name: SYNCGROUP_OPERATOR_WATCH_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
- name: SYNCGROUP_OPERATOR_HEALTH_PORT
  value: {{ int .Values.ports.health | quote }}
- name: SYNCGROUP_OPERATOR_METRICS_PORT
  value: {{ int .Values.ports.metrics | quote }}
{{- include "syncgroup.given" (dict "settings" .Values.settings "names" (include "syncgroup.settings" . | fromYaml)) }}
{{- with .Values.settings.election }}
{{- include "syncgroup.given" (dict "settings" . "names" (include "syncgroup.electionSettings" $ | fromYaml)) }}
{{- end }}
{{- if .Values.otel.endpoint }}
{{- include "syncgroup.otel" . | nindent 0 }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "syncgroup.otel" -}}
- name: OTEL_SERVICE_NAME
  value: syncgroup-operator
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .Values.otel.endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: http/protobuf
{{- with .Values.otel.headersSecret }}
{{- if .name }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ .name | quote }}
      key: {{ .key | quote }}
{{- end }}
{{- end }}
{{- with .Values.otel.sampler }}
- name: OTEL_TRACES_SAMPLER
  value: {{ . | quote }}
{{- end }}
{{- with .Values.otel.samplerArg }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ . | quote }}
{{- end }}
- name: POD_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.uid
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- /* Kubernetes puts variables that stand further up into later ones. */}}
{{- $attributes := list
  "k8s.namespace.name=$(SYNCGROUP_OPERATOR_NAMESPACE)"
  "k8s.pod.name=$(SYNCGROUP_OPERATOR_IDENTITY)"
  "k8s.pod.uid=$(POD_UID)"
  "k8s.node.name=$(NODE_NAME)"
  "k8s.deployment.name=syncgroup-operator"
  "k8s.container.name=operator"
}}
{{- range $name, $value := .Values.otel.resourceAttributes }}
{{- $attributes = append $attributes (printf "%s=%s" $name $value) }}
{{- end }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ join "," $attributes | quote }}
{{- end }}
