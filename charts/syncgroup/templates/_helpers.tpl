{{/*
Names are fixed: the roles in files/roles have theirs from the operator's code, and a cluster has one operator.
*/}}
{{- define "syncgroup.name" -}}
syncgroup-operator
{{- end }}

{{- define "syncgroup.selector" -}}
app.kubernetes.io/name: syncgroup-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "syncgroup.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/part-of" "syncgroup"
  "app.kubernetes.io/managed-by" .Release.Service
}}
{{- $own = merge $own (include "syncgroup.selector" . | fromYaml) }}
{{- /* What selectors and Helm rely on wins over the user's labels. */}}
{{- merge $own .Values.commonLabels | toYaml }}
{{- end }}

{{/* An image's reference. Takes the chart's appVersion and one `image` of the values. */}}
{{- define "syncgroup.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .appVersion }}
{{- end }}
{{- end }}

{{/* The subjects of every binding: the operator's account. */}}
{{- define "syncgroup.subjects" -}}
- kind: ServiceAccount
  name: {{ .Values.serviceAccount.name | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{/* Where an alert's runbook is. Takes metrics.prometheusRule and the alert's name. */}}
{{- define "syncgroup.runbook" -}}
{{- $rule := index . 0 }}
{{- $anchor := index . 1 | lower -}}
runbook: docs/runbooks.md#{{ $anchor }}
{{- with $rule.runbookUrl }}
runbook_url: {{ printf "%s#%s" . $anchor | quote }}
{{- end }}
{{- end }}

{{/* The port of the OTLP endpoint, by its scheme where it names none. */}}
{{- define "syncgroup.otelPort" -}}
{{- $url := urlParse .Values.otel.endpoint }}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (ternary "443" "80" (eq $url.scheme "https")) }}
{{- end }}

{{/* Rules between values, which a schema can only refuse in riddles. */}}
{{- define "syncgroup.check" -}}
{{- if and (gt (int .Values.replicas) 1) (eq (toString .Values.settings.leaderElection) "false") }}
{{- fail "settings.leaderElection is false with more than one replica: all of them would act. Set replicas to 1, or leave leader election on." }}
{{- end }}
{{- if eq (int .Values.ports.health) (int .Values.ports.metrics) }}
{{- fail "ports.health and ports.metrics are the same: give each its own." }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) }}
{{- fail "metrics.serviceMonitor needs metrics.service: set metrics.service.enabled to true." }}
{{- end }}
{{- $timing := .Values.settings.election | default dict }}
{{- $lease := $timing.leaseSeconds | default 15 | float64 }}
{{- $renew := $timing.renewSeconds | default 10 | float64 }}
{{- $retry := $timing.retrySeconds | default 2 | float64 }}
{{- if or (le $lease $renew) (le $renew $retry) }}
{{- fail (printf "settings.election: leaseSeconds (%v) must be above renewSeconds (%v), and that above retrySeconds (%v): otherwise two replicas may act." $lease $renew $retry) }}
{{- end }}
{{- end }}
